package brokertest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

func settleCases() []testCase {
	return []testCase{
		{"what is settled never comes again", (*env).settled},
		{"settling in any order covers nothing else", (*env).settledInAnyOrder},
		{"what is not settled comes again after Close", (*env).unsettled},
		{"a former session can't settle", (*env).stale},
		{"settling twice", (*env).settledTwice},
		{"requeue at once", (*env).requeue},
		{"requeue for later", (*env).requeueLater},
		{"reject", (*env).reject},
		{"settling while Receive waits", (*env).settleWhileReceiving},
		{"settling from several goroutines", (*env).settleConcurrently},
		{"settling nothing", (*env).settleNothing},
		{"messages are unchanged", (*env).unchanged},
		{"ids are bytes", (*env).hostileIDs},
	}
}

func (e *env) settled() {
	e.in.Send(e.T, numbered(5)...)
	s := e.session(10)
	e.settle(s, onceward.Ack, e.receive(s, 5)...)
	e.wantNothing(s)
	e.close(s)
	e.wantNothing(e.session(10))
}

func (e *env) settledInAnyOrder() {
	e.in.Send(e.T, numbered(4)...)
	s := e.session(10)
	ins := e.receive(s, 4)
	e.settle(s, onceward.Ack, ins[3])
	e.settle(s, onceward.Ack, ins[1])
	e.close(s)
	s = e.session(10)
	again := e.receive(s, 2)
	e.wantIDs(again, ins[0].ID, ins[2].ID)
	e.settle(s, onceward.Ack, again...)
	e.wantNothing(s)
}

func (e *env) unsettled() {
	e.in.Send(e.T, numbered(6)...)
	s := e.session(10)
	ins := e.receive(s, 3)
	for _, in := range ins {
		if in.Redelivered {
			e.Errorf("%s is redelivered at first", in.ID)
		}
	}
	e.settle(s, onceward.Ack, ins[1])
	e.close(s)
	s = e.session(10)
	if !e.h.Returns {
		e.wantIDs(e.receive(s, 5), "m000", "m002", "m003", "m004", "m005")
		return
	}
	again := e.receive(s, 2)
	e.wantIDs(again, "m000", "m002")
	e.wantHint(again)
	e.wantIDs(e.receive(s, 3), "m003", "m004", "m005")
}

func (e *env) stale() {
	e.in.Send(e.T, numbered(2)...)
	former := e.session(10)
	ins := e.receive(former, 2)
	e.close(former)
	for _, v := range []onceward.Verdict{onceward.Ack, onceward.Requeue, onceward.Reject} {
		if err := former.Settle(e.ctx, verdict(ins[0], v)); !errors.Is(err, onceward.ErrStale) {
			e.Fatalf("Settle(%d) after Close = %v, want ErrStale", v, err)
		}
	}
	s := e.session(10)
	again := e.receive(s, 2)
	if err := s.Settle(e.ctx, verdict(ins[0], onceward.Ack)); !errors.Is(err, onceward.ErrStale) {
		e.Fatalf("Settle of a former session's delivery = %v, want ErrStale", err)
	}
	e.close(s)
	s = e.session(10)
	again = e.receive(s, len(again)) // nothing reached the broker: both come again
	e.wantIDs(again, "m000", "m001")
	e.settle(s, onceward.Ack, again...)
	e.wantNothing(s)
}

func (e *env) settledTwice() {
	e.in.Send(e.T, numbered(2)...)
	s := e.session(10)
	ins := e.receive(s, 2)
	e.settle(s, onceward.Ack, ins[0])
	// Whatever it says, it does no harm.
	_ = s.Settle(e.ctx, verdict(ins[0], onceward.Ack))
	if err := s.Settle(e.ctx, verdict(ins[1], onceward.Ack)); err != nil && !errors.Is(err, onceward.ErrStale) {
		e.Fatalf("Settle of another delivery = %v", err)
	}
	e.close(s)
	s = e.session(10)
	ctx, cancel := context.WithTimeout(e.ctx, quiet)
	defer cancel()
	if again, _ := s.Receive(ctx, 10); slices.Contains(ids(again), ins[0].ID) {
		e.Fatalf("%s came again after it was settled twice", ins[0].ID)
	}
}

func (e *env) requeue() {
	e.in.Send(e.T, numbered(4)...)
	s := e.session(10)
	ins := e.receive(s, 2)
	e.settle(s, onceward.Requeue, ins...)
	all := e.receive(s, 4)
	if e.h.Returns {
		e.wantIDs(all, "m000", "m001", "m002", "m003")
		e.wantHint(all[:2])
	}
	got := ids(all)
	slices.Sort(got)
	if !slices.Equal(got, []string{"m000", "m001", "m002", "m003"}) {
		e.Fatalf("received %q", got)
	}
	e.settle(s, onceward.Ack, all...)
	e.wantNothing(s)
}

func (e *env) requeueLater() {
	if !e.can.DelayedRetry {
		e.Skip("the source has no delayed retry")
	}
	e.in.Send(e.T, numbered(2)...)
	s := e.session(10)
	in := e.receiveOne(s)
	const after = 700 * time.Millisecond
	start := time.Now()
	e.must(s.Settle(e.ctx, onceward.Settlement{Incoming: in, Verdict: onceward.Requeue, After: after}))
	e.settle(s, onceward.Ack, e.receiveOne(s)) // the other is not held up
	again := e.receiveOne(s)
	if took := time.Since(start); took < after-10*time.Millisecond {
		e.Errorf("it came again after %v, want %v", took, after)
	}
	e.wantHint([]onceward.Incoming{again})
	if again.ID != in.ID || !bytes.Equal(again.Body, in.Body) {
		e.Errorf("it came again as %q", again.ID)
	}
	e.settle(s, onceward.Ack, again)
	e.wantNothing(s)
}

func (e *env) reject() {
	e.in.Send(e.T, numbered(3)...)
	s := e.session(10)
	ins := e.receive(s, 3)
	e.must(s.Settle(e.ctx, verdict(ins[0], onceward.Ack), verdict(ins[1], onceward.Reject), verdict(ins[2], onceward.Ack)))
	e.wantNothing(s)
	e.close(s)
	e.wantNothing(e.session(10))
	if e.in.Dead == nil || !e.can.DeadLetters {
		return
	}
	if dead := e.in.Dead(e.T); !slices.Equal(dead, []string{ins[1].ID}) {
		e.Fatalf("dead letters %q, want %q", dead, ins[1].ID)
	}
}

func (e *env) settleWhileReceiving() {
	e.in.Send(e.T, numbered(1)...)
	s := e.session(10)
	in := e.receiveOne(s)
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
	e.settle(s, onceward.Ack, in)
	e.in.Send(e.T, msg("next"))
	next := <-got
	e.wantIDs(next, "next")
	e.settle(s, onceward.Ack, next...)
}

func (e *env) settleConcurrently() {
	e.in.Send(e.T, numbered(60)...)
	s := e.session(100)
	ins := e.receive(s, 60)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := i; j < len(ins); j += 6 {
				if err := s.Settle(e.ctx, verdict(ins[j], onceward.Ack)); err != nil {
					e.Errorf("Settle: %v", err)
				}
			}
		})
	}
	wg.Wait()
	e.close(s)
	e.wantNothing(e.session(10))
}

func (e *env) settleNothing() {
	s := e.session(10)
	e.must(s.Settle(e.ctx))
}

func (e *env) unchanged() {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	want := []*onceward.Message{
		{ID: "empty"},
		{ID: "body", Body: every},
		{ID: "json", Body: []byte(` {"a": 1.0} ` + "\n")},
		{ID: "headers", Body: []byte("x"), Headers: onceward.Headers{"a": {"1"}, "A": {"2"}, "text": {"é \u2028 \"'"}, "empty": {""}}},
		{ID: "large", Body: bytes.Repeat([]byte("0123456789abcde\x00"), 1<<14)},
		{ID: "key", Key: "a key", Body: []byte("x")},
	}
	e.in.Send(e.T, want...)
	s := e.session(10)
	got := map[string]onceward.Incoming{}
	for _, in := range e.receive(s, len(want)) {
		got[in.ID] = in
	}
	for _, m := range want {
		in, ok := got[m.ID]
		if !ok {
			e.Fatalf("%s did not come", m.ID)
		}
		if !bytes.Equal(in.Body, m.Body) {
			e.Errorf("%s: body of %d bytes, want %d: %.60q", m.ID, len(in.Body), len(m.Body), in.Body)
		}
		for name := range maps.Keys(m.Headers) { // a source may add its own
			if !slices.Equal(in.Headers[name], m.Headers[name]) {
				e.Errorf("%s: header %s is %q, want %q", m.ID, name, in.Headers[name], m.Headers[name])
			}
		}
		if in.Key != m.Key {
			e.Errorf("%s: key %q, want %q", m.ID, in.Key, m.Key)
		}
	}
}

func (e *env) hostileIDs() {
	want := []string{
		"abc", "ABC", "abc ", " abc", "é", "e\u0301", "😀", `'`, `"`, `\`, "%", "null", "0", "1e0", "a:b", "a b", "a,b", "a/b", "a.b", "*", ">", "$1",
		strings.Repeat("k", 200), strings.Repeat("k", 199) + "l", "0190c8a4-5b6e-7abc-8def-0123456789ab",
	}
	var ms []*onceward.Message
	for _, id := range want {
		ms = append(ms, msg(id))
	}
	e.in.Send(e.T, ms...)
	s := e.session(100)
	ins := e.receive(s, len(want))
	for _, in := range ins {
		if string(in.Body) != "body of "+in.ID {
			e.Errorf("id %q came with %q", in.ID, in.Body)
		}
	}
	e.wantIDs(ins, want...)
}
