package onceward_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// box is a broker that outlives its consumers. It gives back what a session leaves unsettled, and
// keeps account of what became of each message sent.
type box struct {
	hints   bool // redeliveries are marked
	delays  bool // it can delay and dead-letter
	ends    bool // it ends when everything is settled
	portion int  // most deliveries per Receive

	mu      sync.Mutex
	parcels []*parcel
	changed chan struct{}
}

// parcel is one message sent: the same message sent twice is two parcels.
type parcel struct {
	onceward.Message
	serial   string
	with     *boxSession // has it unsettled
	sent     int         // deliveries
	attempts int
	due      time.Time
	verdict  onceward.Verdict // Ack or Reject once settled
	by       *proc            // who settled it
}

func newBox() *box { return &box{hints: true, portion: 3, changed: make(chan struct{})} }

const serialHeader = "serial"

func (b *box) send(ms ...onceward.Message) {
	for _, m := range ms {
		p := &parcel{Message: m, serial: fmt.Sprintf("%s/%d", m.ID, len(b.parcels))}
		p.Headers = onceward.Headers{serialHeader: {p.serial}}
		b.parcels = append(b.parcels, p)
	}
}

func (b *box) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// quiet reports whether everything sent is settled.
func (b *box) quiet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(b.parcels, func(p *parcel) bool { return p.verdict == 0 })
}

// boxSource is the box as one process sees it.
type boxSource struct {
	*box
	proc *proc
}

func (s *boxSource) String() string { return "box" }

func (s *boxSource) Capabilities() onceward.Capabilities {
	return onceward.Capabilities{Hints: s.hints, DelayedRetry: s.delays, DeadLetters: s.delays}
}

func (s *boxSource) Subscribe(_ context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	n := &boxSession{box: s.box, proc: s.proc, prefetch: p.Prefetch, closed: make(chan struct{})}
	s.proc.sessions = append(s.proc.sessions, n)
	return n, nil
}

type boxSession struct {
	*box
	proc     *proc
	prefetch int
	held     int
	closed   chan struct{}
}

func (n *boxSession) over() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

func (n *boxSession) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	for {
		n.mu.Lock()
		in, wait := n.take(min(most, n.portion))
		ended := n.ends && !slices.ContainsFunc(n.parcels, func(p *parcel) bool { return p.verdict == 0 })
		changed := n.changed
		n.mu.Unlock()
		if len(in) > 0 {
			return in, nil
		}
		if ended {
			return nil, io.EOF
		}
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		case <-n.closed:
			t.Stop()
			return nil, io.ErrUnexpectedEOF
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		t.Stop()
	}
}

func (n *boxSession) take(most int) (in []onceward.Incoming, wait time.Duration) {
	wait = time.Hour
	if n.over() {
		return nil, wait
	}
	for _, p := range n.parcels {
		if len(in) == most || n.held == n.prefetch {
			break
		}
		if p.verdict != 0 || p.with != nil {
			continue
		}
		if d := time.Until(p.due); d > 0 {
			wait = min(wait, d)
			continue
		}
		in = append(in, onceward.Incoming{
			Message: p.Message, Redelivered: n.hints && p.sent > 0, Attempts: p.attempts, Receipt: p,
		})
		p.with = n
		p.sent++
		n.held++
	}
	return in, wait
}

func (n *boxSession) Settle(_ context.Context, ss ...onceward.Settlement) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.wake()
	var stale error
	for i := range ss {
		p := ss[i].Receipt.(*parcel)
		if p.with != n {
			stale = onceward.ErrStale
			continue
		}
		p.with = nil
		n.held--
		switch ss[i].Verdict {
		case onceward.Requeue:
			p.due, p.attempts = time.Now().Add(ss[i].After), ss[i].Attempts
		default:
			p.verdict, p.by = ss[i].Verdict, n.proc
		}
	}
	return stale
}

func (n *boxSession) Close(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over() {
		return nil
	}
	close(n.closed)
	for _, p := range n.parcels {
		if p.with == n {
			p.with = nil
		}
	}
	n.wake()
	return nil
}

// queueSource is a queue of a store as a source.
type queueSource struct {
	onceward.Queue
	name  string
	order bool
}

const queueLease = time.Minute

func (s *queueSource) String() string                      { return "queue " + s.name }
func (s *queueSource) Capabilities() onceward.Capabilities { return onceward.Capabilities{Hints: true} }
func (s *queueSource) Backing() onceward.Queue             { return s.Queue }
func (s *queueSource) Subscribe(_ context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	return &queueSession{queueSource: s}, nil
}

type queueSession struct {
	*queueSource
	mu   sync.Mutex
	rows []onceward.Row // leased
}

func (n *queueSession) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	for {
		ls, err := n.Lease(ctx, onceward.LeaseParams{Queue: n.name, Max: min(most, 3), For: queueLease, KeepOrder: n.order})
		if err != nil {
			return nil, err
		}
		if len(ls) > 0 {
			return n.incoming(ls), nil
		}
		if err := n.Wait(ctx, n.name); err != nil {
			return nil, err
		}
	}
}

func (n *queueSession) incoming(ls []onceward.Leased) []onceward.Incoming {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := make([]onceward.Incoming, len(ls))
	for i := range ls {
		n.rows = append(n.rows, ls[i].Row)
		in[i] = onceward.Incoming{Message: ls[i].Message, Redelivered: ls[i].Redelivered, Attempts: ls[i].Attempts, Row: &ls[i].Row}
	}
	return in
}

func (n *queueSession) Settle(ctx context.Context, ss ...onceward.Settlement) error {
	var os []onceward.Outcome
	for i := range ss {
		os = append(os, onceward.Outcome{Row: *ss[i].Row, Verdict: ss[i].Verdict, After: ss[i].After})
	}
	return n.Finish(ctx, os...)
}

func (n *queueSession) Close(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, row := range n.rows { // those that are gone, or another's, are left alone
		_ = n.Finish(ctx, onceward.Outcome{Row: row, Verdict: onceward.Requeue})
	}
	return nil
}
