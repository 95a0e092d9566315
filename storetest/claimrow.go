package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/onceward/onceward"
)

// withRow is the record of a leased message.
func withRow(l onceward.Leased) onceward.Record {
	r := onceward.Record{ID: l.StoredID, Fingerprint: onceward.Fingerprint(l.Message.Body), Row: &l.Row}
	return r
}

func (e *env[TTx]) claimRow() {
	e.put("q", msg("a", "x"), msg("b", "x"))
	ls := e.wantLease(onceward.LeaseParams{Queue: "q"}, "a", "b")
	e.wantClaim("c", withRow(ls[0]), onceward.Fresh)
	e.wantRecorded("c", []onceward.Record{rec("a", "x"), rec("b", "x")}, true, false)
	e.wantRows(onceward.Filter{Queue: "q"}, 1)
	e.one(onceward.Filter{ID: "b"})
	if err := e.s.Finish(e.ctx, ack(ls[0].Row)); !errors.Is(err, onceward.ErrLeaseLost) {
		e.Fatalf("Finish of a row that a claim has deleted = %v, want ErrLeaseLost", err)
	}
}

func (e *env[TTx]) claimDuplicateRow() {
	e.claim("c", rec("a", "x"))
	e.put("q", msg("a", "x"))
	e.wantClaim("c", withRow(e.leaseSoon(onceward.LeaseParams{Queue: "q"})), onceward.Duplicate)
	e.wantRows(onceward.Filter{Queue: "q"}, 0)
}

func (e *env[TTx]) claimOtherBodyRow() {
	e.claim("c", rec("a", "x"))
	e.put("q", msg("a", "y"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	e.wantClaim("c", withRow(l), onceward.OtherBody)
	e.must(e.s.Finish(e.ctx, ack(l.Row)))
}

func (e *env[TTx]) claimRowRollback() {
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	no := errors.New("no")
	err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		found, err := e.s.Claim(ctx, tx, "c", []onceward.Record{withRow(l)})
		if err != nil || found[0] != onceward.Fresh {
			e.Errorf("Claim = %v, %v", names(found), err)
		}
		return no
	})
	if !errors.Is(err, no) {
		e.Fatalf("InTx = %v", err)
	}
	e.wantClaim("c", withRow(l), onceward.Fresh)
}

func (e *env[TTx]) claimLost() {
	former, present := e.takenOver("q", "a", "x")
	e.wantClaim("c", withRow(former), onceward.Lost)
	e.wantRecorded("c", []onceward.Record{rec("a", "x")}, false)
	e.wantClaim("c", withRow(present), onceward.Fresh)
	gone := withRow(present)
	gone.ID = "b"
	e.wantClaim("c", gone, onceward.Lost)
	e.wantRecorded("c", recs("b"), false)
}

func (e *env[TTx]) claimLostDuplicate() {
	former, present := e.takenOver("q", "a", "x")
	e.claim("c", rec("a", "x"))
	e.wantClaim("c", withRow(former), onceward.Duplicate, onceward.Lost)
	e.must(e.s.Finish(e.ctx, ack(present.Row)))
}

func (e *env[TTx]) claimGivenBack() {
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Requeue}))
	e.wantClaim("c", withRow(l), onceward.Lost)
	e.wantLease(onceward.LeaseParams{Queue: "q"}, "a")
	e.wantClaim("c", withRow(l), onceward.Lost)
	e.wantRecorded("c", []onceward.Record{rec("a", "x")}, false)
}

func (e *env[TTx]) claimLostAmongOthers() {
	former, _ := e.takenOver("q", "m", "x")
	e.put("r", msg("z", "x"))
	mine := e.leaseSoon(onceward.LeaseParams{Queue: "r"})
	got := e.claim("c", withRow(mine), withRow(former), rec("a", "x"))
	want := []onceward.Found{onceward.Fresh, onceward.Lost, onceward.Fresh}
	if !slices.Equal(got, want) {
		e.Fatalf("Claim = %v, want %v", names(got), names(want))
	}
	e.wantRecorded("c", []onceward.Record{rec("z", "x"), rec("m", "x"), rec("a", "x")}, true, false, true)
	e.wantRows(onceward.Filter{Queue: "r"}, 0)
}
