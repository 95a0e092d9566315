package onceward

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"
)

// Unlimited and Forever lift a limit.
const (
	Unlimited               = -1
	Forever   time.Duration = -1
)

const defaultRetention = 30 * 24 * time.Hour

// Config tunes a consumer. Nil and the zero value are ready to use. A field that has no effect under
// the consumer's guarantee is an error.
type Config struct {
	// Attempts is after how many starts of the handler a failing message becomes a dead letter.
	// Defaults to 10; [Unlimited] never gives up.
	Attempts int
	// Backoff is how long to wait after the given number of attempts. Defaults to
	// [ExponentialBackoff](1 s, 10 min).
	Backoff func(attempt int) time.Duration
	// Grace is how long a shutdown waits for handlers that have started. Defaults to 25 s.
	Grace time.Duration
	// Hooks observe the consumer.
	Hooks *Hooks
	// Identity says where a message's id is. Defaults to [ByMessageID].
	Identity Identity
	// Key gives a message's ordering key. Defaults to Message.Key.
	Key func(*Message) (string, error)
	// KeepOrder makes a message wait while an earlier one of its key is waiting for a retry. A dead
	// letter holds up nothing. Needs a store.
	KeepOrder bool
	// Lanes is how many transactions, or handlers, run at a time. Messages of one key share a lane.
	// Defaults to 1: two lanes that touch the same rows in different order deadlock.
	Lanes int
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
	// Match says which messages are for this consumer. Others are settled and counted as skipped.
	// Defaults to all.
	Match func(*Message) bool
	// MaxBatch is how many messages share a transaction at most. The actual number adapts, and never
	// waits for messages that have not come. Defaults to 256; 1 gives each message its own.
	MaxBatch int
	// Mismatch says what a message is that has the id of a finished one and another body. Defaults
	// to [MismatchDead].
	Mismatch Mismatch
	// Queue keeps retries, dead letters and emitted messages of AtLeastOnce. Defaults to the
	// source's own means, without which AtLeastOnce needs it.
	Queue Queue
	// Retention is how long the inbox remembers a finished message. Defaults to 30 days, or to how
	// long the source may repeat a message if that is longer; [Forever] never forgets.
	Retention time.Duration
	// Timeout is how long a handler call may take. Its context ends then; a handler that does not
	// return soon after is abandoned: its transaction is rolled back, and its attempt has failed.
	// Defaults to 30 s.
	Timeout time.Duration
}

// Mismatch is a policy for the same id with another body.
type Mismatch uint8

// The policies for the same id with another body.
const (
	MismatchDead      Mismatch = iota // a dead letter: somebody uses one id for two messages
	MismatchDuplicate                 // a duplicate: for producers that stamp a new time into a repeated body
)

// ExponentialBackoff doubles the wait from first to most, and takes off up to a fifth at random.
func ExponentialBackoff(first, most time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		d := first
		for i := 1; i < attempt && d < most; i++ {
			d *= 2
		}
		d = min(d, most)
		if d <= 0 {
			return 0
		}
		return d - rand.N(d/5+1) //nolint:gosec // jitter needs no secrecy
	}
}

// Hooks observe a consumer. Each is called synchronously, possibly from several goroutines, and must
// return soon and not panic; nil ones are left out.
type Hooks struct {
	// Attempted: a handler has returned. What it did may still be rolled back with its batch.
	Attempted func(consumer string, d *Delivery, took time.Duration, err error)
	// Duplicate: a message was dropped because it is finished or waits already.
	Duplicate func(consumer string, m *Message)
	// Dead: a message has become a dead letter.
	Dead func(consumer string, m *Message, reason error)
	// Committed: a transaction with n effects was committed.
	Committed func(consumer string, n int, took time.Duration)
	// State: the consumer has changed its state, why if not by plan.
	State func(consumer string, s State, why error)
}

func (c *Config) withDefaults() Config {
	d := Config{}
	if c != nil {
		d = *c
	}
	if d.Attempts == 0 {
		d.Attempts = 10
	}
	if d.Backoff == nil {
		d.Backoff = ExponentialBackoff(time.Second, 10*time.Minute)
	}
	if d.Grace == 0 {
		d.Grace = 25 * time.Second
	}
	if d.Hooks == nil {
		d.Hooks = &Hooks{}
	}
	if d.Lanes == 0 {
		d.Lanes = 1
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	if d.MaxBatch == 0 {
		d.MaxBatch = 256
	}
	if d.Timeout == 0 {
		d.Timeout = 30 * time.Second
	}
	return d
}

// validate checks what the user wrote, before the defaults are filled in.
func (c *Config) validate(name string, src Source) error {
	if name == "" || len(name) > 200 {
		return errors.New("onceward: a consumer needs a name of at most 200 bytes; it is the consumer's identity for ever")
	}
	if src == nil {
		return fmt.Errorf("onceward: consumer %s: the source is nil", Quote(name))
	}
	if c == nil {
		return nil
	}
	for _, f := range []struct {
		bad  bool
		what string
	}{
		{c.Attempts < Unlimited, "Attempts must be positive or Unlimited"},
		{c.Grace < 0, "Grace must not be negative"},
		{c.Lanes < 0 || c.Lanes > 1024*runtime.GOMAXPROCS(0), "Lanes must be positive and sensible"},
		{c.MaxBatch < 0 || c.MaxBatch > 10000, "MaxBatch must be from 1 to 10000"},
		{c.Retention < Forever, "Retention must be positive or Forever"},
		{c.Timeout < 0, "Timeout must not be negative"},
		{c.Mismatch > MismatchDuplicate, "Mismatch is not one of the policies"},
	} {
		if f.bad {
			return fmt.Errorf("onceward: consumer %s: Config.%s", Quote(name), f.what)
		}
	}
	return nil
}

// refuse is an error if a field is set that has no effect under the guarantee.
func (c *Config) refuse(guarantee string, fields map[string]bool) error {
	for field, set := range fields {
		if set {
			return fmt.Errorf("onceward: Config.%s has no effect under %s; remove it", field, guarantee)
		}
	}
	return nil
}
