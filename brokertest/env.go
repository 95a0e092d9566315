package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward"
)

// env is what a case works with.
type env struct {
	*testing.T
	ctx context.Context
	h   Harness
	in  Instance
	can onceward.Capabilities
}

// patience is how long the suite waits for what must happen.
const patience = 20 * time.Second

// quiet is how long nothing must come for the suite to believe that nothing will.
const quiet = 300 * time.Millisecond

func msg(id string) *onceward.Message {
	return &onceward.Message{ID: id, Body: []byte("body of " + id)}
}

func numbered(n int) []*onceward.Message {
	ms := make([]*onceward.Message, n)
	for i := range ms {
		ms[i] = msg(fmt.Sprintf("m%03d", i))
	}
	return ms
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// session opens a session, which is closed after the test if it was not before.
func (e *env) session(prefetch int) onceward.Session {
	e.Helper()
	s, err := e.in.Source.Subscribe(e.ctx, onceward.SubscribeParams{Consumer: "suite", Prefetch: prefetch})
	e.must(err)
	e.Cleanup(func() { e.close(s) })
	return s
}

func (e *env) close(s onceward.Session) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		e.Errorf("Close: %v", err)
	}
}

// receive waits for n deliveries.
func (e *env) receive(s onceward.Session, n int) []onceward.Incoming {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	var got []onceward.Incoming
	for len(got) < n {
		ins, err := s.Receive(ctx, n-len(got))
		if err != nil {
			e.Fatalf("Receive after %d of %d deliveries: %v", len(got), n, err)
		}
		if len(ins) == 0 || len(ins) > n-len(got) {
			e.Fatalf("Receive returned %d deliveries, want 1 to %d", len(ins), n-len(got))
		}
		got = append(got, ins...)
	}
	return got
}

func (e *env) receiveOne(s onceward.Session) onceward.Incoming {
	e.Helper()
	return e.receive(s, 1)[0]
}

// wantNothing checks that nothing comes for a while.
func (e *env) wantNothing(s onceward.Session) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, quiet)
	defer cancel()
	ins, err := s.Receive(ctx, 10)
	if len(ins) > 0 {
		e.Fatalf("received %q, want nothing", ids(ins))
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("Receive = %v, want the context's error", err)
	}
}

func verdict(in onceward.Incoming, v onceward.Verdict) onceward.Settlement {
	st := onceward.Settlement{Incoming: in, Verdict: v}
	if v == onceward.Reject {
		st.Reason = errors.New("rejected by the suite")
	}
	return st
}

func (e *env) settle(s onceward.Session, v onceward.Verdict, ins ...onceward.Incoming) {
	e.Helper()
	ss := make([]onceward.Settlement, len(ins))
	for i := range ins {
		ss[i] = verdict(ins[i], v)
	}
	e.must(s.Settle(e.ctx, ss...))
}

func (e *env) wantIDs(ins []onceward.Incoming, want ...string) {
	e.Helper()
	got := ids(ins)
	if !e.h.Ordered {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		e.Fatalf("received %q, want %q", got, want)
	}
}

// wantHint checks Redelivered, where the source sets it. A source may say true out of caution, never
// false where a handler may have started.
func (e *env) wantHint(ins []onceward.Incoming) {
	e.Helper()
	for _, in := range ins {
		if e.can.Hints && !in.Redelivered {
			e.Errorf("%s comes again without Redelivered", in.ID)
		}
	}
}

func ids(ins []onceward.Incoming) []string {
	s := make([]string, len(ins))
	for i := range ins {
		s[i] = ins[i].ID
	}
	return s
}
