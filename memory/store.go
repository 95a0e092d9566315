// Package memory is a store and a source that live in the process: for the tests of programs that
// use onceward, and for its own. Nothing survives the process, but a [Store] survives its consumers,
// so that a test can stop one, or kill it half-way, and start another on the same data.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

var _ onceward.Store[*Tx] = (*Store)(nil)

// Store is an in-process store. Its transactions run concurrently. Each locks what it touches (the
// messages it claims, its rows, its positions, the keys of its values, also those it only reads) and
// holds the locks to its end, so that transactions are serialisable; everything else it does is kept
// aside until it commits. A copy of a Store is of no use; make one by [NewStore].
type Store struct {
	// LockWait is how long a transaction waits for a lock of another: then a claim fails with
	// [onceward.ErrBusy], and anything else with [onceward.ErrConflict]. That is also how a deadlock
	// ends. Defaults to 2 s. Set it before use.
	LockWait time.Duration

	mu        sync.Mutex
	locks     map[lockKey]*owner
	released  chan struct{} // closed, and made anew, when a lock is released
	inbox     map[string]*ledger
	counts    map[msgKey]count
	queues    map[queueKey]*queue
	bySeq     map[int64]*row
	byID      map[string][]*row // by stored id, of all queues
	arrivals  map[string]chan struct{}
	positions map[posKey]position
	values    map[string]string
	lastSeq   int64
	lastFence int64
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		locks:     map[lockKey]*owner{},
		released:  make(chan struct{}),
		inbox:     map[string]*ledger{},
		counts:    map[msgKey]count{},
		queues:    map[queueKey]*queue{},
		bySeq:     map[int64]*row{},
		byID:      map[string][]*row{},
		arrivals:  map[string]chan struct{}{},
		positions: map[posKey]position{},
		values:    map[string]string{},
	}
}

// String names the store for logs.
func (s *Store) String() string { return "memory" }

// Guarded is true: a handler that tries to end its transaction is refused, and nothing is committed.
func (s *Store) Guarded() bool { return true }

// Ready is nil unless ctx has ended.
func (s *Store) Ready(ctx context.Context) error { return ctx.Err() }

// InTx runs fn in a transaction, as [onceward.Transactor] says. It never returns
// [onceward.ErrUnavailable], [onceward.ErrInDoubt] or [onceward.ErrTxEscaped].
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: begin: %w", err)
	}
	tx := newTx(s)
	stop := context.AfterFunc(ctx, func() {
		tx.rollback(fmt.Errorf("memory: rolled back, for the context has ended: %w", context.Cause(ctx)))
	})
	defer stop()
	// A panic, and a goroutine that exits, end the transaction here; otherwise it has ended already.
	defer tx.rollback(errors.New("memory: the handler did not return"))
	return tx.finish(ctx, fn(ctx, tx))
}

type lockKind uint8

const (
	lockMessage lockKind = iota
	lockRow
	lockPosition
	lockValue
)

type lockKey struct {
	kind lockKind
	a, b string
	n    int64
}

// owner holds locks: a transaction, or one call of a method that has none.
type owner struct {
	held  []lockKey
	ended chan struct{} // closed when a transaction has ended; nil for a call
}

// lock takes k for o. The caller holds s.mu, which is released while lock waits.
func (s *Store) lock(ctx context.Context, o *owner, k lockKey) error {
	if holder := s.locks[k]; holder == o {
		return nil
	} else if holder != nil {
		if err := s.awaitLock(ctx, o, k); err != nil {
			return err
		}
	}
	s.locks[k] = o
	o.held = append(o.held, k)
	return nil
}

func (s *Store) awaitLock(ctx context.Context, o *owner, k lockKey) error {
	wait := s.LockWait
	if wait <= 0 {
		wait = 2 * time.Second
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for s.locks[k] != nil {
		released := s.released
		var err error
		s.mu.Unlock()
		select {
		case <-released:
		case <-timer.C:
			err = onceward.ErrConflict
			if k.kind == lockMessage {
				err = onceward.ErrBusy
			}
			err = fmt.Errorf("memory: waited %v: %w", wait, err)
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-o.ended:
			err = errEnded
		}
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	select {
	case <-o.ended: // it ended while the lock was released: nobody would give the lock back
		return errEnded
	default:
		return nil
	}
}

// unlock releases what o holds. The caller holds s.mu.
func (s *Store) unlock(o *owner) {
	if len(o.held) == 0 {
		return
	}
	for _, k := range o.held {
		delete(s.locks, k)
	}
	o.held = nil
	close(s.released)
	s.released = make(chan struct{})
}

// Value returns the committed value of key.
func (s *Store) Value(key string) (value string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok = s.values[key]
	return value, ok
}

// Values returns a copy of all committed values.
func (s *Store) Values() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(map[string]string, len(s.values))
	maps.Copy(c, s.values)
	return c
}
