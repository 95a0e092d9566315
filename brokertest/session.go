package brokertest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/onceward/onceward"
)

func sessionCases() []testCase {
	return []testCase{
		{"names itself", (*env).named},
		{"at most max at a time", (*env).mostAtATime},
		{"order", (*env).order},
		{"at most Prefetch unsettled", (*env).prefetch},
		{"Receive ends with its context", (*env).receiveContext},
		{"Receive waits for what is sent", (*env).receiveWaits},
		{"competing sessions share the messages", (*env).competing},
		{"a closed session's messages go to another", (*env).handedOver},
		{"a finite source ends", (*env).ends},
		{"a session that is closed delivers nothing", (*env).closed},
		{"many sessions, one after the other", (*env).manySessions},
	}
}

func (e *env) named() {
	if e.in.Source.String() == "" {
		e.Error("the source has no name")
	}
}

func (e *env) mostAtATime() {
	e.in.Send(e.T, numbered(5)...)
	s := e.session(10)
	var got []onceward.Incoming
	for len(got) < 5 {
		ins, err := s.Receive(e.ctx, 2)
		e.must(err)
		if len(ins) == 0 || len(ins) > 2 {
			e.Fatalf("Receive of at most 2 returned %d", len(ins))
		}
		got = append(got, ins...)
	}
	e.wantIDs(got, "m000", "m001", "m002", "m003", "m004")
}

func (e *env) order() {
	if !e.h.Ordered {
		e.Skip("the source does not keep order")
	}
	e.in.Send(e.T, numbered(100)...)
	s := e.session(1000)
	for i, in := range e.receive(s, 100) {
		if want := numbered(i + 1)[i].ID; in.ID != want {
			e.Fatalf("number %d is %s, want %s", i, in.ID, want)
		}
	}
}

func (e *env) prefetch() {
	if _, ok := e.in.Source.(onceward.StoreQueue); ok {
		e.Skip("a queue of a store can't know what its consumer has settled in a transaction")
	}
	e.in.Send(e.T, numbered(8)...)
	s := e.session(3)
	ins := e.receive(s, 3)
	e.wantNothing(s)
	e.settle(s, onceward.Ack, ins[0])
	ins = append(ins, e.receiveOne(s))
	e.wantNothing(s)
	other := e.session(10) // what is not delivered yet is not withheld from others
	rest := e.receive(other, 4)
	e.settle(other, onceward.Ack, rest...)
	e.settle(s, onceward.Ack, ins[1:]...)
	e.wantNothing(s)
}

func (e *env) receiveContext() {
	s := e.session(10)
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := s.Receive(ctx, 10)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		e.Fatalf("Receive = %v, want the context's error", err)
	}
	e.in.Send(e.T, msg("a")) // the session is of use still
	e.settle(s, onceward.Ack, e.receiveOne(s))
}

func (e *env) receiveWaits() {
	s := e.session(10)
	e.wantNothing(s)
	got := make(chan []onceward.Incoming, 1)
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	go func() {
		ins, err := s.Receive(ctx, 10)
		if err != nil {
			e.Errorf("Receive: %v", err)
		}
		got <- ins
	}()
	e.in.Send(e.T, msg("a"))
	e.wantIDs(<-got, "a")
}

func (e *env) competing() {
	const n = 120
	e.in.Send(e.T, numbered(n)...)
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		s := e.session(5)
		wg.Go(func() {
			for {
				ins, err := s.Receive(ctx, 5)
				if err != nil {
					return
				}
				mu.Lock()
				for _, in := range ins {
					seen[in.ID]++
				}
				done := len(seen) == n
				mu.Unlock()
				for _, in := range ins {
					if err := s.Settle(e.ctx, verdict(in, onceward.Ack)); err != nil {
						e.Errorf("Settle: %v", err)
					}
				}
				if done {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != n {
		e.Fatalf("%d of %d messages came", len(seen), n)
	}
	for id, times := range seen {
		if times != 1 {
			e.Errorf("%s came %d times", id, times)
		}
	}
}

func (e *env) handedOver() {
	e.in.Send(e.T, numbered(3)...)
	s := e.session(10)
	ins := e.receive(s, 3)
	other := e.session(10)
	e.wantNothing(other)
	e.settle(s, onceward.Ack, ins[0])
	e.close(s)
	again := e.receive(other, 2)
	e.wantIDs(again, ins[1].ID, ins[2].ID)
	e.wantHint(again)
	e.settle(other, onceward.Ack, again...)
	e.wantNothing(other)
}

func (e *env) ends() {
	if e.in.End == nil {
		e.Skip("the source never ends")
	}
	e.in.Send(e.T, numbered(3)...)
	e.in.End(e.T)
	s := e.session(10)
	e.settle(s, onceward.Ack, e.receive(s, 3)...)
	for range 2 {
		if ins, err := s.Receive(e.ctx, 10); !errors.Is(err, io.EOF) {
			e.Fatalf("Receive after the last message = %q, %v, want io.EOF", ids(ins), err)
		}
	}
}

func (e *env) closed() {
	s := e.session(10)
	e.close(s)
	e.close(s) // a second time does no harm
	e.in.Send(e.T, msg("a"))
	ctx, cancel := context.WithTimeout(e.ctx, quiet)
	defer cancel()
	if ins, err := s.Receive(ctx, 10); err == nil {
		e.Fatalf("Receive after Close = %q", ids(ins))
	}
	other := e.session(10)
	e.settle(other, onceward.Ack, e.receiveOne(other))
}

func (e *env) manySessions() {
	e.in.Send(e.T, numbered(3)...)
	for range 10 {
		s := e.session(10)
		e.wantIDs(e.receive(s, 3), "m000", "m001", "m002")
		e.close(s)
	}
	s := e.session(10)
	e.settle(s, onceward.Ack, e.receive(s, 3)...)
	e.wantNothing(s)
}
