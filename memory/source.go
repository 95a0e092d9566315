package memory

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

var _ onceward.Source = (*Source)(nil)

// Source is an in-process queue that behaves like a broker's: its sessions compete for messages, and
// what a session leaves unsettled is delivered again, in its old place. It is safe for concurrent use.
// Set its fields before use.
type Source struct {
	// Name names the source for logs. Defaults to "memory".
	Name string
	// NoHints leaves Incoming.Redelivered unset, as Kafka does.
	NoHints bool
	// NoDelayedRetry makes a requeue ignore Settlement.After.
	NoDelayedRetry bool
	// NoDeadLetters makes a rejected message vanish.
	NoDeadLetters bool
	// Horizon is what Capabilities says of it.
	Horizon time.Duration

	mu         sync.Mutex
	changed    chan struct{} // closed, and made anew, when a Receive may have to look again
	ended      bool
	last       int
	ready      []*item // in order of n
	delayed    []*item
	unsettled  int
	dead       []DeadLetter
	deliveries map[string]int // by message id
}

// DeadLetter is a message that was rejected.
type DeadLetter struct {
	onceward.Message
	Reason error
}

type item struct {
	n         int
	msg       onceward.Message
	delivered bool
	attempts  int
	due       time.Time
}

// NewSource returns a source with the messages, which stays open: see [Source.Send] and [Source.End].
func NewSource(msgs ...*onceward.Message) *Source {
	s := &Source{changed: make(chan struct{}), deliveries: map[string]int{}}
	s.Send(msgs...)
	return s
}

// Messages returns a source that has ended: once all messages are settled, Receive returns io.EOF.
func Messages(msgs ...*onceward.Message) *Source {
	s := NewSource(msgs...)
	s.End()
	return s
}

// Send adds copies of messages. Nothing is checked: a test may send what no broker should.
func (s *Source) Send(msgs ...*onceward.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		s.last++
		s.ready = append(s.ready, &item{n: s.last, msg: clone(m)})
	}
	s.wake()
}

// End says that nothing will be sent any more.
func (s *Source) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wake()
}

// Pending is how many messages are not settled: they wait, or a session has them.
func (s *Source) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready) + len(s.delayed) + s.unsettled
}

// Deliveries is how many times messages with this id were delivered.
func (s *Source) Deliveries(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deliveries[id]
}

// Dead returns the rejected messages, oldest first.
func (s *Source) Dead() []DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

// String is the source's name.
func (s *Source) String() string { return cmp.Or(s.Name, "memory") }

// Capabilities are as the fields say.
func (s *Source) Capabilities() onceward.Capabilities {
	return onceward.Capabilities{Hints: !s.NoHints, DelayedRetry: !s.NoDelayedRetry, DeadLetters: !s.NoDeadLetters, Horizon: s.Horizon}
}

// Subscribe opens a session. With a Prefetch of 0 it may hold any number of deliveries.
func (s *Source) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &session{src: s, prefetch: p.Prefetch, held: map[*receipt]bool{}}, nil
}

func (s *Source) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// giveBack puts an item where it was.
func (s *Source) giveBack(it *item) {
	i, _ := slices.BinarySearchFunc(s.ready, it.n, func(x *item, n int) int { return cmp.Compare(x.n, n) })
	s.ready = slices.Insert(s.ready, i, it)
}

// promote makes what is due ready, and returns how long it takes until the next is.
func (s *Source) promote() (next time.Duration, more bool) {
	now := time.Now()
	s.delayed = slices.DeleteFunc(s.delayed, func(it *item) bool {
		wait := it.due.Sub(now)
		if wait <= 0 {
			s.giveBack(it)
			return true
		}
		if !more || wait < next {
			next, more = wait, true
		}
		return false
	})
	return next, more
}

type session struct {
	src      *Source
	prefetch int
	// Guarded by src.mu.
	held   map[*receipt]bool
	closed bool
}

// receipt is what one delivery carries; the item is the session's as long as it is held.
type receipt struct{ it *item }

func (r *receipt) String() string { return fmt.Sprintf("message %d of memory", r.it.n) }

func (s *session) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if most <= 0 {
		return nil, fmt.Errorf("memory: Receive of %d deliveries", most)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ins, wait, err := s.take(most)
		if len(ins) > 0 || err != nil {
			return ins, err
		}
		if err := wait.until(ctx); err != nil {
			return nil, err
		}
	}
}

// pause is what a Receive waits for.
type pause struct {
	changed <-chan struct{}
	next    time.Duration
	timed   bool
}

func (p pause) until(ctx context.Context) error {
	var due <-chan time.Time
	if p.timed {
		timer := time.NewTimer(p.next)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-p.changed:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (s *session) take(most int) ([]onceward.Incoming, pause, error) {
	src := s.src
	src.mu.Lock()
	defer src.mu.Unlock()
	if s.closed {
		return nil, pause{}, fmt.Errorf("memory: the session is closed: %w", onceward.ErrStale)
	}
	next, more := src.promote()
	if s.prefetch > 0 {
		most = min(most, s.prefetch-len(s.held))
	}
	n := min(most, len(src.ready))
	if n <= 0 && src.ended && len(src.ready)+len(src.delayed)+src.unsettled == 0 {
		return nil, pause{}, io.EOF
	}
	var ins []onceward.Incoming
	for _, it := range src.ready[:max(n, 0)] {
		r := &receipt{it}
		ins = append(ins, onceward.Incoming{Message: clone(&it.msg), Redelivered: it.delivered && !src.NoHints, Attempts: it.attempts, Receipt: r})
		it.delivered = true
		s.held[r] = true
		src.unsettled++
		src.deliveries[it.msg.ID]++
	}
	src.ready = src.ready[max(n, 0):]
	return ins, pause{src.changed, next, more}, nil
}

func (s *session) Settle(ctx context.Context, ss ...onceward.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	src := s.src
	src.mu.Lock()
	defer src.mu.Unlock()
	var err error
	for i := range ss {
		if v := ss[i].Verdict; v < onceward.Ack || v > onceward.Reject {
			err = fmt.Errorf("memory: Settle with verdict %d", v)
		} else if r, ok := ss[i].Receipt.(*receipt); ok && s.held[r] {
			delete(s.held, r)
			src.settle(r.it, &ss[i])
		} else {
			err = onceward.ErrStale
		}
	}
	src.wake()
	return err
}

func (s *Source) settle(it *item, st *onceward.Settlement) {
	s.unsettled--
	switch st.Verdict {
	case onceward.Ack:
	case onceward.Requeue:
		it.attempts = st.Attempts
		if st.After > 0 && !s.NoDelayedRetry {
			it.due = time.Now().Add(st.After)
			s.delayed = append(s.delayed, it)
		} else {
			s.giveBack(it)
		}
	case onceward.Reject:
		if !s.NoDeadLetters {
			s.dead = append(s.dead, DeadLetter{it.msg, st.Reason})
		}
	}
}

func (s *session) Close(context.Context) error {
	src := s.src
	src.mu.Lock()
	defer src.mu.Unlock()
	s.closed = true
	for r := range s.held {
		src.giveBack(r.it)
		src.unsettled--
	}
	clear(s.held)
	src.wake()
	return nil
}
