package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

func heldCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "behind an earlier row of its key", run: (*env[TTx]).heldBehind},
		{name: "not behind a dead row", run: (*env[TTx]).heldDead},
		{name: "a row behind an earlier one only", run: (*env[TTx]).heldRows},
		{name: "a finished message is a duplicate", run: (*env[TTx]).heldDuplicate},
		{name: "among others", run: (*env[TTx]).heldBatch},
	}
}

func keyed(r onceward.Record, key string) onceward.Record {
	r.OrderKey = key
	return r
}

func keyedParking(id, key string) onceward.Parking {
	p := parking(id, "x")
	p.OrderKey = key
	return p
}

func (e *env[TTx]) heldBehind() {
	e.wantPark("c", keyedParking("a", "k"), onceward.Fresh)
	e.wantClaim("c", keyed(rec("b", "x"), "k"), onceward.Held)
	e.wantRecorded("c", recs("b"), false)
	for _, key := range []string{"", "K", "k ", "j", "k\x00"} {
		e.wantClaim("c", keyed(rec("with key "+key, "x"), key), onceward.Fresh)
	}
	e.wantClaim("d", keyed(rec("b", "x"), "k"), onceward.Fresh)
	e.put("q", msg("b", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	e.wantClaim("c", keyed(withRow(l), "k"), onceward.Held)
	behind := keyedParking("b", "k")
	behind.Row = &l.Row
	e.wantPark("c", behind, onceward.Fresh) // its row was left, and parking does not say Held
	e.wantPark("c", keyedParking("d", "k"), onceward.Fresh)
	for _, id := range []string{"a", "b", "d"} {
		p := leaseRetries("c")
		p.KeepOrder = true
		ls := e.wantLease(p, id)
		e.wantClaim("c", keyed(withRow(ls[0]), "k"), onceward.Fresh)
	}
	e.wantClaim("c", keyed(rec("e", "x"), "k"), onceward.Fresh)
}

func (e *env[TTx]) heldDead() {
	p := keyedParking("a", "k")
	p.Dead = true
	e.wantPark("c", p, onceward.Fresh)
	e.wantClaim("c", keyed(rec("b", "x"), "k"), onceward.Fresh)
	unordered := parking("u", "x")
	e.wantPark("c", unordered, onceward.Fresh)
	e.wantClaim("c", rec("v", "x"), onceward.Fresh)
}

func (e *env[TTx]) heldRows() {
	later := keyedParking("a", "k")
	later.After = time.Hour
	e.wantPark("c", later, onceward.Fresh)
	e.wantPark("c", keyedParking("b", "k"), onceward.Fresh)
	l := e.leaseSoon(leaseRetries("c"))
	e.wantClaim("c", keyed(withRow(l), "k"), onceward.Held)
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Requeue, After: time.Hour}))
	e.wantPark("c", keyedParking("first", "j"), onceward.Fresh)
	e.wantPark("c", keyedParking("second", "j"), onceward.Fresh)
	first := e.wantLease(leaseRetries("c"), "first", "second")[0]
	e.wantClaim("c", keyed(withRow(first), "j"), onceward.Fresh) // the later row does not hold the earlier one
}

func (e *env[TTx]) heldDuplicate() {
	e.claim("c", rec("b", "x"))
	e.wantPark("c", keyedParking("a", "k"), onceward.Fresh)
	e.wantClaim("c", keyed(rec("b", "x"), "k"), onceward.Duplicate)
	e.wantClaim("c", keyed(rec("a", "x"), "k"), onceward.Parked)
}

func (e *env[TTx]) heldBatch() {
	e.wantPark("c", keyedParking("a", "k"), onceward.Fresh)
	got := e.claim("c", keyed(rec("1", "x"), "j"), keyed(rec("2", "x"), "k"), rec("3", "x"), keyed(rec("4", "x"), "k"))
	want := []onceward.Found{onceward.Fresh, onceward.Held, onceward.Fresh, onceward.Held}
	if !slices.Equal(got, want) {
		e.Fatalf("Claim = %v, want %v", names(got), names(want))
	}
	e.wantRecorded("c", []onceward.Record{rec("1", "x"), rec("2", "x"), rec("3", "x"), rec("4", "x")}, true, false, true, false)
}

func attemptCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "counts each message on its own", run: (*env[TTx]).attemptCounts},
		{name: "a rollback does not touch the count", run: (*env[TTx]).attemptRollback},
		{name: "the count goes with the claim", run: (*env[TTx]).attemptClaimed},
		{name: "the count goes with parking", run: (*env[TTx]).attemptParked},
		{name: "a row counts in itself", run: (*env[TTx]).attemptRow},
		{name: "a lost row is not counted", run: (*env[TTx]).attemptLost},
		{name: "a count is no record", run: (*env[TTx]).attemptNoRecord},
	}
}

func (e *env[TTx]) wantStart(r onceward.Row, want int) {
	e.Helper()
	n, err := e.s.Start(e.ctx, r)
	e.must(err)
	if n != want {
		e.Fatalf("Start(%+v) = %d, want %d", r, n, want)
	}
}

func (e *env[TTx]) wantAttempt(consumer string, r onceward.Record, want int) {
	e.Helper()
	n, err := e.s.Attempt(e.ctx, consumer, r)
	e.must(err)
	if n != want {
		e.Fatalf("Attempt(%q, %s) = %d, want %d", consumer, onceward.Quote(r.ID), n, want)
	}
}

func (e *env[TTx]) attemptCounts() {
	for n := range 3 {
		e.wantAttempt("c", rec("a", "x"), n+1)
	}
	for _, id := range []string{"A", "a ", "b", "\xff\x00"} {
		e.wantAttempt("c", rec(id, "x"), 1)
	}
	e.wantAttempt("d", rec("a", "x"), 1)
	e.wantAttempt("c", rec("a", "x"), 4)
	if e.in.Reopen != nil {
		n, err := e.in.Reopen(e.T).Attempt(e.ctx, "c", rec("a", "x"))
		if n != 5 || err != nil {
			e.Fatalf("Attempt in another store = %d, %v, want 5", n, err)
		}
	}
}

func counted(r onceward.Record) onceward.Record {
	r.Counted = true
	return r
}

func (e *env[TTx]) attemptRollback() {
	no := errors.New("no")
	for n := range 3 {
		e.wantAttempt("c", rec("a", "x"), n+1)
		err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			if _, err := e.s.Claim(ctx, tx, "c", []onceward.Record{counted(rec("a", "x"))}); err != nil {
				e.Errorf("Claim: %v", err)
			}
			return no
		})
		if !errors.Is(err, no) {
			e.Fatalf("InTx = %v", err)
		}
	}
}

func (e *env[TTx]) attemptClaimed() {
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantAttempt("c", rec("a", "x"), 2)
	e.wantAttempt("d", rec("a", "x"), 1)
	e.wantClaim("c", counted(rec("a", "x")), onceward.Fresh)
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantAttempt("d", rec("a", "x"), 2)
}

func (e *env[TTx]) attemptParked() {
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantAttempt("c", rec("b", "x"), 1)
	p := parking("a", "x")
	p.Counted, p.Attempts = true, 1
	e.wantPark("c", p, onceward.Fresh)
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantAttempt("c", rec("b", "x"), 2)
}

func (e *env[TTx]) attemptRow() {
	p := parking("a", "x")
	p.Attempts = 4
	e.wantPark("c", p, onceward.Fresh)
	l := e.leaseSoon(leaseRetries("c"))
	if l.Attempts != 4 {
		e.Fatalf("leased with %d attempts, want 4", l.Attempts)
	}
	e.wantStart(l.Row, 5)
	e.wantStart(l.Row, 6)
	if row := e.one(retries("c")); row.Attempts != 6 || row.State != onceward.InHand {
		e.Fatalf("the row after two starts: %+v", row)
	}
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Requeue}))
	if l = e.leaseSoon(leaseRetries("c")); l.Attempts != 6 {
		e.Fatalf("given back and leased again with %d attempts, want 6", l.Attempts)
	}
	e.wantClaim("c", withRow(l), onceward.Fresh)
}

func (e *env[TTx]) attemptLost() {
	former, present := e.takenOver("q", "a", "x")
	if n, err := e.s.Start(e.ctx, former.Row); !errors.Is(err, onceward.ErrLeaseLost) {
		e.Fatalf("Start with a lost row = %d, %v, want ErrLeaseLost", n, err)
	}
	e.wantStart(present.Row, 1)
	e.must(e.s.Finish(e.ctx, ack(present.Row)))
	if n, err := e.s.Start(e.ctx, present.Row); !errors.Is(err, onceward.ErrLeaseLost) {
		e.Fatalf("Start with a row that is gone = %d, %v, want ErrLeaseLost", n, err)
	}
}

func (e *env[TTx]) attemptNoRecord() {
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantRecorded("c", recs("a"), false)
	known, err := e.s.Known(e.ctx, "c")
	e.must(err)
	if known {
		e.Fatal("a count made its consumer known")
	}
	e.wantRows(onceward.Filter{}, 0)
	e.wantClaim("c", counted(rec("a", "x")), onceward.Fresh)
}
