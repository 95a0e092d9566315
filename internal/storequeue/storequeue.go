// Package storequeue makes a queue of a store a source, the same for every store.
package storequeue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// LeaseFor is for how long a session leases a row. A delivery that takes longer may come to somebody
// else too; the fence of its row then keeps the former owner from changing anything.
const LeaseFor = time.Minute

// New returns the source that leases rows of the named queue of q. It is made without connecting, and
// has nothing to close.
//
// A consumer that uses the same store deletes a row in its own transaction, and does not settle it.
// Hence a session of this source does not count unsettled deliveries against SubscribeParams.Prefetch.
func New(q onceward.Queue, name string) onceward.StoreQueue { return &source{q, name} }

type source struct {
	q    onceward.Queue
	name string
}

func (s *source) Backing() onceward.Queue { return s.q }

func (s *source) String() string { return "queue " + s.name }

func (s *source) Capabilities() onceward.Capabilities {
	return onceward.Capabilities{Hints: true, DelayedRetry: true, DeadLetters: true}
}

// Subscribe opens a session; it does not connect.
func (s *source) Subscribe(_ context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	if s.name == "" || s.name == onceward.Retries {
		return nil, onceward.Permanent(fmt.Errorf("onceward: %s can't be a source", onceward.Quote(s.name)))
	}
	ss := &session{source: s, most: max(2*p.Prefetch, 1024), outstanding: map[int64]lease{}}
	ss.open, ss.end = context.WithCancel(context.Background())
	return ss, nil
}

type session struct {
	*source
	most int             // rows remembered, so that Close can give them back before their leases run out
	open context.Context // ends when the session is closed
	end  context.CancelFunc

	mu          sync.Mutex
	outstanding map[int64]lease
	order       []onceward.Row // of leasing; may name rows that are outstanding no more
	done        bool
}

type lease struct {
	fence int64
	until time.Time // by this process's clock, which only decides what to forget
}

type receipt struct {
	session *session
	origin  string
}

func (r receipt) String() string { return r.origin }

var errClosed = fmt.Errorf("onceward: the session is closed: %w", onceward.ErrStale)

// Receive leases rows, and waits for some if there are none.
func (s *session) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if most <= 0 {
		return nil, fmt.Errorf("onceward: Receive of %d deliveries", most)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.open, func() { cancel(errClosed) })()
	for {
		before := time.Now()
		ls, err := s.q.Lease(ctx, onceward.LeaseParams{Queue: s.name, Max: most, For: LeaseFor})
		if err == nil && len(ls) > 0 {
			return s.hold(ctx, ls, before)
		}
		if err == nil {
			err = s.q.Wait(ctx, s.name)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil && errors.Is(context.Cause(ctx), errClosed) {
			err = errClosed
		}
		if err != nil {
			return nil, err
		}
	}
}

// hold remembers what was leased. If the session was closed meanwhile, it gives it back.
func (s *session) hold(ctx context.Context, ls []onceward.Leased, at time.Time) ([]onceward.Incoming, error) {
	ins := make([]onceward.Incoming, len(ls))
	rows := make([]onceward.Row, len(ls))
	for i, l := range ls {
		rows[i] = l.Row
		ins[i] = onceward.Incoming{
			Message: l.Message, Redelivered: l.Redelivered, Row: &ls[i].Row,
			Receipt: receipt{s, fmt.Sprintf("queue %s, row %d", s.name, l.Seq)},
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return nil, errors.Join(errClosed, s.giveBack(context.WithoutCancel(ctx), rows))
	}
	for _, r := range rows {
		s.outstanding[r.Seq] = lease{r.Fence, at.Add(LeaseFor)}
		s.order = append(s.order, r)
	}
	s.forget(at)
	return ins, nil
}

// forget drops rows whose lease has run out, or that are too many.
func (s *session) forget(now time.Time) {
	n := 0
	for _, r := range s.order {
		l, ok := s.outstanding[r.Seq]
		ok = ok && l.fence == r.Fence
		if ok && len(s.outstanding) <= s.most && l.until.After(now) {
			break
		}
		if ok {
			delete(s.outstanding, r.Seq)
		}
		n++
	}
	s.order = s.order[n:]
}

// Settle finishes rows. It returns [onceward.ErrStale] for those that were leased by another session,
// or are gone.
func (s *session) Settle(ctx context.Context, ss ...onceward.Settlement) error {
	var stale error
	os := make([]onceward.Outcome, 0, len(ss))
	s.mu.Lock()
	for _, st := range ss {
		if r, ok := st.Receipt.(receipt); !ok || r.session != s || s.done {
			stale = onceward.ErrStale
			continue
		}
		o := onceward.Outcome{Row: *st.Row, Verdict: st.Verdict, After: st.After}
		if st.Reason != nil {
			o.Reason = st.Reason.Error()
		}
		os = append(os, o)
	}
	s.mu.Unlock()
	if len(os) == 0 {
		return stale
	}
	err := s.q.Finish(ctx, os...)
	if err != nil && !errors.Is(err, onceward.ErrLeaseLost) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range os {
		if s.outstanding[o.Seq].fence == o.Fence {
			delete(s.outstanding, o.Seq)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", onceward.ErrStale, err)
	}
	return stale
}

// Close gives back the rows that are leased still. A second call does nothing.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return nil
	}
	s.done = true
	s.end()
	rows := make([]onceward.Row, 0, len(s.outstanding))
	for seq, l := range s.outstanding {
		rows = append(rows, onceward.Row{Seq: seq, Fence: l.fence})
	}
	s.outstanding, s.order = nil, nil
	s.mu.Unlock()
	return s.giveBack(ctx, rows)
}

// giveBack makes rows due again. One that is gone was consumed in a transaction, or leased by
// somebody else.
func (s *session) giveBack(ctx context.Context, rows []onceward.Row) error {
	if len(rows) == 0 {
		return nil
	}
	os := make([]onceward.Outcome, len(rows))
	for i, r := range rows {
		os[i] = onceward.Outcome{Row: r, Verdict: onceward.Requeue}
	}
	if err := s.q.Finish(ctx, os...); err != nil && !errors.Is(err, onceward.ErrLeaseLost) {
		return fmt.Errorf("onceward: give back rows of queue %s: %w", onceward.Quote(s.name), err)
	}
	return nil
}
