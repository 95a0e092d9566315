package storetest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

func appendCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "visible after the commit only", run: (*env[TTx]).appendVisible, concurrent: true},
		{name: "gone after a rollback", run: (*env[TTx]).appendRollback},
		{name: "a waiting id is left alone", run: (*env[TTx]).appendDedup},
		{name: "a message without an id", run: (*env[TTx]).appendNoID},
		{name: "wait returns after the commit", run: (*env[TTx]).appendWakes},
		{name: "order of appending", run: (*env[TTx]).appendOrder},
	}
}

func (e *env[TTx]) append(how error, queue string, ms ...*onceward.Message) error {
	return e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		return errors.Join(e.s.Append(ctx, tx, queue, ms...), how)
	})
}

func (e *env[TTx]) appendVisible() {
	e.must(e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		if err := e.s.Append(ctx, tx, "q", msg("a", "x")); err != nil {
			return err
		}
		if ls, err := e.s.List(e.ctx, onceward.Filter{}); err != nil || len(ls) != 0 {
			e.Errorf("before the commit, List = %q, %v", ids(ls), err)
		}
		ls, err := e.s.Lease(e.ctx, onceward.LeaseParams{Queue: "q", Max: 1, For: long})
		if err != nil || len(ls) != 0 {
			e.Errorf("before the commit, Lease = %q, %v", ids(ls), err)
		}
		return nil
	}))
	e.wantLease(fromQ, "a")
}

func (e *env[TTx]) appendRollback() {
	no := errors.New("no")
	if err := e.append(no, "q", msg("a", "x")); !errors.Is(err, no) {
		e.Fatalf("InTx = %v", err)
	}
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) appendDedup() {
	e.must(e.append(nil, "q", msg("a", "x"), msg("b", "x"), msg("a", "y")))
	e.must(e.append(nil, "q", msg("b", "y"), msg("c", "x")))
	e.must(e.append(nil, "r", msg("a", "x")))
	e.must(e.append(nil, "q"))
	ls := e.wantLease(fromQ, "a", "b", "c")
	if string(ls[0].Message.Body) != "x" || string(ls[1].Message.Body) != "x" {
		e.Fatalf("a repeat changed a body to %q, %q", ls[0].Message.Body, ls[1].Message.Body)
	}
	e.must(e.append(nil, "q", msg("a", "x"))) // in hand: still there
	e.wantRows(onceward.Filter{Queue: "q"}, 3)
	e.must(e.s.Finish(e.ctx, ack(ls[0].Row)))
	e.must(e.append(nil, "q", msg("a", "x")))
	e.wantRows(onceward.Filter{Queue: "q"}, 3)
}

func (e *env[TTx]) appendNoID() {
	if err := e.append(nil, "q", msg("a", "x"), msg("", "x")); !errors.Is(err, onceward.ErrNoID) {
		e.Fatalf("Append of a message without an id = %v, want ErrNoID", err)
	}
	for queue, m := range map[string]*onceward.Message{"": msg("a", "x"), onceward.Retries: msg("a", "x"), "q": nil} {
		if err := e.append(nil, queue, m); !onceward.IsPermanent(err) {
			e.Errorf("Append of %v to the queue %q = %v, want a permanent error", m, queue, err)
		}
	}
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) appendWakes() {
	ch := e.waiting(e.ctx)
	e.must(e.append(nil, "q", msg("a", "x")))
	err, ok := lapse(ch, mostWait)
	if !ok {
		e.Fatal("Wait did not return after a commit")
	}
	e.must(err)
}

func (e *env[TTx]) appendOrder() {
	e.must(e.append(nil, "q", msg("c", "x"), msg("a", "x")))
	e.put("q", msg("b", "x"))
	e.must(e.append(nil, "q", msg("0", "x")))
	e.wantLease(fromQ, "c", "a", "b", "0")
}

func messageCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "put", run: (*env[TTx]).messagePut},
		{name: "appended", run: (*env[TTx]).messageAppended},
		{name: "parked", run: (*env[TTx]).messageParked},
		{name: "is not the caller's any more", run: (*env[TTx]).messageCopied},
		{name: "of a megabyte", run: (*env[TTx]).messageLarge},
		{name: "gets a time if it has none", run: (*env[TTx]).messageTime},
	}
}

// odd are messages that an encoding may change.
func odd() []*onceward.Message {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	at := time.Date(2024, 2, 29, 23, 59, 59, 123456000, time.FixedZone("", 5400))
	return []*onceward.Message{
		{ID: "empty body", Body: []byte{}},
		{ID: "nil body", Headers: onceward.Headers{}},
		{ID: "every byte", Topic: string(every), Key: string(every), Body: every, Time: at},
		{ID: "time", Time: time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC)},
		{ID: "headers", Body: []byte("x"), Time: at, Headers: onceward.Headers{
			"a": {"1", "2", "2", ""}, "A": {"other case"}, "": {"empty name"}, "empty": {""}, string(every): {string(every)},
			"quote\"'\\": {"\n\r\t\x00"}, "é": {"e\u0301", "\ufffd", "\xff"}, "<&>": {"<&>\u2028"},
		}},
		{ID: "json", Body: []byte(` {"a": 1.0, "a":1e400} `)},
		{ID: "spaces", Topic: " t ", Key: " k ", Body: []byte(" \n")},
	}
}

func (e *env[TTx]) wantSame(got, want onceward.Message) {
	e.Helper()
	if got.ID != want.ID || got.Topic != want.Topic || got.Key != want.Key {
		e.Errorf("id, topic, key: %.300q, want %.300q", []string{got.ID, got.Topic, got.Key}, []string{want.ID, want.Topic, want.Key})
	}
	if !bytes.Equal(got.Body, want.Body) {
		e.Errorf("%s: body of %d bytes: %.100q, want %d: %.100q", want.ID, len(got.Body), got.Body, len(want.Body), want.Body)
	}
	if !want.Time.IsZero() && !got.Time.Equal(want.Time) {
		e.Errorf("%s: time %v, want %v", want.ID, got.Time, want.Time)
	}
	if !maps.EqualFunc(got.Headers, want.Headers, slices.Equal) {
		e.Errorf("%s: headers %q, want %q", want.ID, got.Headers, want.Headers)
	}
}

func (e *env[TTx]) wantOdd(p onceward.LeaseParams) {
	e.Helper()
	want := odd()
	ls := e.lease(p)
	if len(ls) != len(want) {
		e.Fatalf("leased %q", ids(ls))
	}
	listed := e.list(onceward.Filter{Queue: p.Queue})
	for i, m := range want {
		e.wantSame(ls[i].Message, *m)
		e.wantSame(listed[i].Message, *m)
	}
}

func (e *env[TTx]) messagePut() {
	e.put("q", odd()...)
	e.wantOdd(fromQ)
}

func (e *env[TTx]) messageAppended() {
	e.must(e.append(nil, "q", odd()...))
	e.wantOdd(fromQ)
}

func (e *env[TTx]) messageParked() {
	for _, m := range odd() {
		p := onceward.Parking{Record: rec(m.ID, string(m.Body)), Message: *m, Reason: "a\x00b\xff " + strings.Repeat("long ", 2000)}
		e.wantPark("c", p, onceward.Fresh)
	}
	e.wantOdd(leaseRetries("c"))
}

func (e *env[TTx]) messageCopied() {
	m := msg("a", "body")
	m.Headers = onceward.Headers{"h": {"v"}}
	e.put("q", m)
	m.Body[0], m.Headers["h"][0] = 'X', "changed"
	l := e.wantLease(fromQ, "a")[0]
	if string(l.Message.Body) != "body" || l.Message.Headers.Get("h") != "v" {
		e.Fatalf("a message changed with its caller's copy: %+v", l.Message)
	}
	l.Message.Body[0], l.Message.Headers["h"][0] = 'X', "changed"
	if again := e.one(onceward.Filter{}); string(again.Message.Body) != "body" || again.Message.Headers.Get("h") != "v" {
		e.Fatalf("a message changed with its reader's copy: %+v", again.Message)
	}
}

func (e *env[TTx]) messageLarge() {
	body := bytes.Repeat([]byte("0123456789abcde\x00"), 1<<16)
	e.put("q", &onceward.Message{ID: "a", Body: body})
	l := e.wantLease(fromQ, "a")[0]
	if !bytes.Equal(l.Message.Body, body) {
		e.Fatalf("a body of %d bytes came back with %d, changed", len(body), len(l.Message.Body))
	}
	p := onceward.Parking{Record: withRow(l), Message: l.Message}
	e.wantPark("c", p, onceward.Fresh)
	if l = e.leaseSoon(leaseRetries("c")); !bytes.Equal(l.Message.Body, body) {
		e.Fatal("a large body was changed by parking")
	}
}

func (e *env[TTx]) messageTime() {
	e.put("q", msg("a", "x"))
	l := e.wantLease(fromQ, "a")[0]
	if d := time.Since(l.Message.Time).Abs(); d > time.Hour {
		e.Fatalf("a message without a time got %v", l.Message.Time)
	}
}
