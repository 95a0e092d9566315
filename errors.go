package onceward

import (
	"errors"
	"fmt"
	"time"
)

// Errors to test for with [errors.Is].
var (
	// ErrNoID stops a consumer that has never seen a message with an id: its Identity is wrong, and
	// going on would turn a whole queue into dead letters. Elsewhere it is the reason of a dead
	// letter, or what a producer gets for a message with an empty ID.
	ErrNoID = errors.New("onceward: message has no id")
	// ErrBusy says that another transaction holds this message right now. Try again later.
	ErrBusy = errors.New("onceward: another transaction holds this message")
	// ErrConflict says that the database rolled the transaction back because of another one
	// (deadlock, serialisation failure, lock time-out): nothing took effect, run it again.
	ErrConflict = errors.New("onceward: rolled back because of another transaction")
	// ErrUnavailable says that the store can't be reached or can't write: nothing took effect, and it
	// may be an outage.
	ErrUnavailable = errors.New("onceward: store unavailable")
	// ErrInDoubt says that a COMMIT or a publish may or may not have happened. Doing the same again
	// with the same id resolves it.
	ErrInDoubt = errors.New("onceward: outcome unknown")
	// ErrTxEnded says that a handler ended the transaction it was given (commit, rollback, DDL with
	// an implicit commit, a swallowed error that made the database roll back), and that what it did
	// afterwards was refused.
	ErrTxEnded = errors.New("onceward: the handler ended the transaction it was given")
	// ErrTxEscaped is ErrTxEnded where the driver could not refuse: statements after that point may
	// have taken effect on their own, so the consumer stops.
	ErrTxEscaped = errors.New("onceward: the handler ended the transaction it was given, and the driver could not refuse the statements that followed")
	// ErrStale says that the session of a delivery has ended: settling it is no longer possible, and
	// the message will be delivered again.
	ErrStale = errors.New("onceward: the delivery's session has ended")
	// ErrLeaseLost says that a leased row was taken over by somebody else.
	ErrLeaseLost = errors.New("onceward: the lease was taken over")
	// ErrNoSchema says that the store's tables are missing or of another version.
	ErrNoSchema = errors.New("onceward: tables missing or of another version; run Migrate")
	// ErrNoFilter refuses an operation that would select everything.
	ErrNoFilter = errors.New("onceward: an empty filter would select everything")
)

// Permanent marks an error that no further attempt can cure: the message becomes a dead letter at
// once. The result unwraps to err; nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err, or an error it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryAfter asks for the next attempt after d instead of the consumer's Backoff, for example as a
// server's Retry-After says. The attempt counts all the same. The result unwraps to err; nil stays
// nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{err, d}
}

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// UnsupportedError refuses a guarantee that a broker, a store or a setting can't keep.
type UnsupportedError struct {
	Guarantee string // the constructor's name
	Component string // which source, store or setting
	Reason    string // what it can't do
	Cure      string // what to do about it
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("onceward: %s can't be kept with %s: %s; %s", e.Guarantee, e.Component, e.Reason, e.Cure)
}
