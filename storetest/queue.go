package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

func queueCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "keeps queues and consumers apart", run: (*env[TTx]).queueApart},
		{name: "a waiting id is put once", run: (*env[TTx]).queueDedup},
		{name: "a message without an id", run: (*env[TTx]).queueNoID},
		{name: "puts retries and dead letters as given", run: (*env[TTx]).queuePutRetries},
		{name: "puts a message for later", run: (*env[TTx]).queuePutLater},
		{name: "many entries at once, in order", run: (*env[TTx]).queueMany},
		{name: "an error puts nothing", run: (*env[TTx]).queueAllOrNothing},
		{name: "wait returns by itself", run: (*env[TTx]).queueWaitPolls},
		{name: "wait returns when a message is put", run: (*env[TTx]).queueWaitPut},
		{name: "wait ends with its context", run: (*env[TTx]).queueWaitContext},
		{name: "hostile ids", run: (*env[TTx]).queueBytes},
	}
}

func (e *env[TTx]) queueApart() {
	names := []string{"q", "Q", "q ", "q\x00", "\xff", onceward.Outbox}
	for _, name := range names {
		e.put(name, msg("a", "x"))
	}
	e.wantRows(onceward.Filter{}, len(names))
	for _, name := range names {
		e.wantLease(onceward.LeaseParams{Queue: name}, "a")
	}
	e.wantPark("c", parking("r", "x"), onceward.Fresh)
	e.wantPark("C", parking("R", "x"), onceward.Fresh)
	e.wantLease(leaseRetries("c"), "r")
	e.wantLease(leaseRetries("C"), "R")
	e.wantLease(leaseRetries("c "))
}

func (e *env[TTx]) queueDedup() {
	e.put("q", msg("a", "x"))
	e.put("q", msg("a", "x"), msg("b", "x"), msg("a", "y"), msg("b", "x"))
	e.put("r", msg("a", "x"))
	ls := e.wantLease(onceward.LeaseParams{Queue: "q"}, "a", "b")
	if string(ls[0].Message.Body) != "x" {
		e.Fatalf("a repeat changed the body to %q", ls[0].Message.Body)
	}
	e.must(e.s.Finish(e.ctx, ack(ls[0].Row)))
	e.put("q", msg("a", "z")) // it waits no longer
	e.wantLease(onceward.LeaseParams{Queue: "q"}, "a")
}

func (e *env[TTx]) queueNoID() {
	err := e.s.Put(e.ctx, onceward.Entry{Queue: "q", Message: *msg("", "x")})
	if !errors.Is(err, onceward.ErrNoID) {
		e.Fatalf("Put of a message without an id = %v, want ErrNoID", err)
	}
	// What was put aside may have none, and two of them are two messages.
	dead := onceward.Entry{Queue: onceward.Retries, Consumer: "c", Message: *msg("", "x"), State: onceward.Dead, Reason: "no id"}
	e.must(e.s.Put(e.ctx, dead))
	e.must(e.s.Put(e.ctx, dead))
	ls := e.list(onceward.Filter{})
	if len(ls) != 2 || ls[0].Message.ID != "" || ls[0].StoredID == "" || ls[0].StoredID == ls[1].StoredID {
		e.Fatalf("rows without an id: %+v", ls)
	}
}

func (e *env[TTx]) queuePutRetries() {
	w := onceward.Entry{
		Queue: onceward.Retries, Consumer: "c", Message: *msg("a", "x"), State: onceward.Waiting,
		Attempts: 3, Due: time.Hour, Reason: "why", Origin: "whence",
	}
	d := w
	d.State, d.Message.ID, d.Due = onceward.Dead, "b", 0
	other := w
	other.Consumer = "d"
	e.must(e.s.Put(e.ctx, w, d, other, w))
	ls := e.list(retries("c"))
	if !slices.Equal(ids(ls), []string{"a", "b"}) {
		e.Fatalf("rows %q", ids(ls))
	}
	if a := ls[0]; a.State != onceward.Waiting || a.Attempts != 3 || a.Reason != "why" || a.Origin != "whence" || a.Due < 59*time.Minute || a.StoredID != "a" {
		e.Errorf("the retry: %+v", a)
	}
	if b := ls[1]; b.State != onceward.Dead || b.Attempts != 3 || b.Reason != "why" || b.Origin != "whence" {
		e.Errorf("the dead letter: %+v", b)
	}
	e.wantRows(retries("d"), 1)
	e.wantClaim("c", rec("a", "x"), onceward.Parked)
}

func (e *env[TTx]) queuePutLater() {
	start := time.Now()
	e.must(e.s.Put(e.ctx, onceward.Entry{Queue: "q", Message: *msg("a", "x"), Due: 300 * time.Millisecond}))
	e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	if took := time.Since(start); took < 290*time.Millisecond {
		e.Fatalf("due after %v, want 300ms", took)
	}
}

func (e *env[TTx]) queueMany() {
	var want []string
	var ms []*onceward.Message
	for i := range 500 {
		want = append(want, fmt.Sprint(i*7919%500))
		ms = append(ms, msg(want[i], "x"))
	}
	e.put("q", ms...)
	var got []string
	for len(got) < 500 {
		ls := e.lease(onceward.LeaseParams{Queue: "q", Max: 64})
		if len(ls) == 0 || len(ls) > 64 {
			e.Fatalf("leased %d rows of %d left, want 1 to 64", len(ls), 500-len(got))
		}
		got = append(got, ids(ls)...)
	}
	if !slices.Equal(got, want) {
		e.Fatal("rows do not come in the order they were put")
	}
}

func (e *env[TTx]) queueAllOrNothing() {
	err := e.s.Put(e.ctx, onceward.Entry{Queue: "q", Message: *msg("a", "x")}, onceward.Entry{Queue: "q", Message: *msg("", "x")})
	if !errors.Is(err, onceward.ErrNoID) {
		e.Fatalf("Put = %v, want ErrNoID", err)
	}
	e.wantRows(onceward.Filter{}, 0)
}

// mostWait is a second, and what a slow machine takes.
const mostWait = 4 * time.Second

func (e *env[TTx]) waiting(ctx context.Context) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- e.s.Wait(ctx, "q") }()
	return ch
}

func (e *env[TTx]) queueWaitPolls() {
	err, ok := lapse(e.waiting(e.ctx), mostWait)
	if !ok {
		e.Fatalf("Wait took more than %v", mostWait)
	}
	e.must(err)
}

func (e *env[TTx]) queueWaitPut() {
	ch := e.waiting(e.ctx)
	e.put("q", msg("a", "x"))
	err, ok := lapse(ch, mostWait)
	if !ok {
		e.Fatalf("Wait did not return after a message was put")
	}
	e.must(err)
	e.wantLease(onceward.LeaseParams{Queue: "q"}, "a")
}

func (e *env[TTx]) queueWaitContext() {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := within(e.T, "Wait", e.waiting(ctx)); !errors.Is(err, context.Canceled) {
		e.Fatalf("Wait = %v, want the context's error", err)
	}
}

func (e *env[TTx]) queueBytes() {
	all := hostileIDs()
	var ms []*onceward.Message
	for _, id := range all {
		ms = append(ms, msg(id, "x"))
	}
	e.put("q", ms...)
	e.put("q", ms...) // all of them wait
	ls := e.lease(onceward.LeaseParams{Queue: "q", Max: 1000})
	if !slices.Equal(ids(ls), all) {
		e.Fatalf("ids come back changed: %.2000q, want %.2000q", ids(ls), all)
	}
	for _, l := range ls {
		if l.StoredID != onceward.StoredID(l.Message.ID) {
			e.Errorf("StoredID of %s is %q", onceward.Quote(l.Message.ID), l.StoredID)
		}
	}
	e.put("r", msg(strings.Repeat("k", 64<<10)+"a", "x"), msg(strings.Repeat("k", 64<<10)+"b", "x"))
	e.wantRows(onceward.Filter{Queue: "r"}, 2)
}
