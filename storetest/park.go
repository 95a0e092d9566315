package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

func parkCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a new row that waits", run: (*env[TTx]).parkWaiting},
		{name: "a new row that is dead", run: (*env[TTx]).parkDead},
		{name: "gives the claim back", run: (*env[TTx]).parkGivesBack},
		{name: "a finished message is a duplicate", run: (*env[TTx]).parkFinished},
		{name: "another body", run: (*env[TTx]).parkOtherBody},
		{name: "at most one row per consumer, id and fingerprint", run: (*env[TTx]).parkTwice},
		{name: "a row that may no longer wait is found parked by its twin", run: (*env[TTx]).parkTwinRow},
		{name: "keeps a row of its own queue in place", run: (*env[TTx]).parkAgain},
		{name: "keeps the sequence of a row of another queue", run: (*env[TTx]).parkMoves},
		{name: "a lost row", run: (*env[TTx]).parkLost},
		{name: "messages without an id", run: (*env[TTx]).parkNoID},
		{name: "hostile ids", run: (*env[TTx]).parkBytes},
		{name: "results in the order given", run: (*env[TTx]).parkOrder},
		{name: "not before its time", run: (*env[TTx]).parkDelay},
		{name: "a claim finds a parked message", run: (*env[TTx]).parkedClaim},
		{name: "a claim that does not compare finds any body parked", run: (*env[TTx]).parkedNoFingerprint},
		{name: "the parked row itself can be claimed", run: (*env[TTx]).parkedRowClaim},
		{name: "a dead row that was replayed is parked again", run: (*env[TTx]).parkedReplay},
	}
}

func retries(consumer string) onceward.Filter {
	return onceward.Filter{Queue: onceward.Retries, Consumer: consumer}
}

func leaseRetries(consumer string) onceward.LeaseParams {
	return onceward.LeaseParams{Queue: onceward.Retries, Consumer: consumer}
}

func (e *env[TTx]) parkWaiting() {
	p := parking("a", "x")
	p.Attempts, p.Origin, p.After = 3, "place 7", time.Hour
	e.wantPark("c", p, onceward.Fresh)
	l := e.one(retries("c"))
	if l.State != onceward.Waiting || l.Attempts != 3 || l.Reason != "reason of a" || l.Origin != "place 7" ||
		l.Queue != onceward.Retries || l.Consumer != "c" || l.StoredID != onceward.StoredID("a") {
		e.Fatalf("parked row: %+v", l)
	}
	if l.Due < time.Hour-time.Minute || l.Due > time.Hour {
		e.Fatalf("due in %v, want an hour", l.Due)
	}
	if l.Age < 0 || l.Age > time.Minute {
		e.Fatalf("age %v of a new row", l.Age)
	}
	e.wantSame(l.Message, p.Message)
	e.wantLease(leaseRetries("c"))
}

func (e *env[TTx]) parkDead() {
	p := deadParking("a", "x")
	p.Attempts = 10
	e.wantPark("c", p, onceward.Fresh)
	l := e.one(retries("c"))
	if l.State != onceward.Dead || l.Attempts != 10 || l.Reason != "reason of a" {
		e.Fatalf("dead row: %+v", l)
	}
	e.wantLease(leaseRetries("c"))
}

func (e *env[TTx]) parkGivesBack() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.wantRecorded("c", recs("a"), false)
	known, err := e.s.Known(e.ctx, "c")
	e.must(err)
	if known {
		e.Fatal("parking left a record in the inbox")
	}
	e.wantPark("d", parking("a", "x"), onceward.Fresh) // another consumer's row
	e.wantRows(onceward.Filter{Queue: onceward.Retries}, 2)
}

func (e *env[TTx]) parkFinished() {
	e.claim("c", rec("a", "x"))
	e.wantPark("c", parking("a", "x"), onceward.Duplicate)
	e.wantPark("c", deadParking("a", "x"), onceward.Duplicate)
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	p := parking("a", "x")
	p.Row = &l.Row
	e.wantPark("c", p, onceward.Duplicate)
	e.wantRows(onceward.Filter{}, 0)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate) // its record stayed
}

func (e *env[TTx]) parkOtherBody() {
	e.claim("c", rec("a", "x"))
	e.wantPark("c", parking("a", "y"), onceward.OtherBody)
	e.wantRows(onceward.Filter{}, 0)
	e.put("q", msg("a", "y"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	p := parking("a", "y")
	p.Row = &l.Row
	e.wantPark("c", p, onceward.OtherBody)
	if kept := e.one(onceward.Filter{}); kept.Queue != "q" || kept.State != onceward.InHand {
		e.Fatalf("the row that should be left alone: %+v", kept)
	}
	p.Dead = true
	e.wantPark("c", p, onceward.OtherBody)
	if dead := e.one(onceward.Filter{}); dead.Seq != l.Seq || dead.State != onceward.Dead || dead.Queue != onceward.Retries {
		e.Fatalf("the dead row: %+v", dead)
	}
	e.wantPark("c", deadParking("a", "y"), onceward.Parked)
	e.wantPark("c", deadParking("a", "z"), onceward.OtherBody)
	e.wantRows(onceward.Filter{}, 2)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
}

func (e *env[TTx]) parkTwice() {
	first := parking("a", "x")
	first.Attempts = 4
	e.wantPark("c", first, onceward.Fresh)
	e.wantPark("c", parking("a", "x"), onceward.Parked)
	e.wantPark("c", deadParking("a", "x"), onceward.Parked)
	if l := e.one(retries("c")); l.Attempts != 4 || l.State != onceward.Waiting {
		e.Fatalf("a repeat changed the parked row: %+v", l)
	}
	e.wantPark("c", parking("a", "y"), onceward.Fresh) // another body: another message
	e.wantPark("c", deadParking("b", "x"), onceward.Fresh)
	e.wantPark("c", parking("b", "x"), onceward.Parked)
	e.wantRows(retries("c"), 3)
}

func (e *env[TTx]) parkTwinRow() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	p := parking("a", "x")
	p.Row = &l.Row
	e.wantPark("c", p, onceward.Parked)
	e.wantRows(onceward.Filter{Queue: "q"}, 0)
	e.wantRows(retries("c"), 1)
}

func (e *env[TTx]) parkAgain() {
	p := parking("a", "x")
	p.Origin = "place 7"
	e.wantPark("c", p, onceward.Fresh)
	e.wantPark("c", parking("b", "x"), onceward.Fresh)
	e.wantLease(leaseRetries("c"), "a", "b")
	l := e.list(onceward.Filter{ID: "a"})[0]
	p.Row, p.Attempts, p.Reason, p.After = &l.Row, 2, "another reason", time.Hour
	e.wantPark("c", p, onceward.Fresh)
	again := e.one(onceward.Filter{ID: "a"})
	if again.Seq != l.Seq || again.State != onceward.Waiting || again.Attempts != 2 || again.Reason != "another reason" ||
		again.Origin != "place 7" || again.Due < 59*time.Minute {
		e.Fatalf("parked again: %+v", again)
	}
	if err := e.s.Finish(e.ctx, ack(l.Row)); !errors.Is(err, onceward.ErrLeaseLost) {
		e.Fatalf("Finish after parking = %v, want ErrLeaseLost", err)
	}
	e.wantPark("c", p, onceward.Lost)
	e.wantRows(retries("c"), 2)
}

func (e *env[TTx]) parkMoves() {
	e.put("q", msg("a", "x"), msg("b", "x"))
	ls := e.wantLease(onceward.LeaseParams{Queue: "q"}, "a", "b")
	p := parking("a", "x")
	p.Row, p.Attempts = &ls[0].Row, 1
	e.wantPark("c", p, onceward.Fresh)
	moved := e.one(onceward.Filter{ID: "a"})
	if moved.Seq != ls[0].Seq || moved.Queue != onceward.Retries || moved.Consumer != "c" || moved.State != onceward.Waiting || moved.Attempts != 1 {
		e.Fatalf("parked from another queue: %+v", moved)
	}
	e.wantSame(moved.Message, p.Message)
	e.wantRows(onceward.Filter{Queue: "q"}, 1)
	e.wantLease(leaseRetries("c"), "a")
}

func (e *env[TTx]) parkLost() {
	former, present := e.takenOver("q", "a", "x")
	p := parking("a", "x")
	p.Row = &former.Row
	e.wantPark("c", p, onceward.Lost)
	p.Dead = true
	e.wantPark("c", p, onceward.Lost)
	e.wantRows(retries("c"), 0)
	e.must(e.s.Finish(e.ctx, ack(present.Row)))
	e.wantPark("c", p, onceward.Lost)
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) parkNoID() {
	synthetic := func(last string) onceward.Parking {
		p := onceward.Parking{Message: *msg("", "x"+last), Dead: true, Reason: onceward.ErrNoID.Error()}
		p.Record = onceward.Record{ID: "\x02synthetic" + last, Fingerprint: 5}
		return p
	}
	e.wantPark("c", synthetic("1"), onceward.Fresh)
	e.wantPark("c", synthetic("1"), onceward.Parked)
	e.wantPark("c", synthetic("2"), onceward.Fresh)
	ls := e.list(retries("c"))
	if len(ls) != 2 || ls[0].Message.ID != "" || ls[0].StoredID != "\x02synthetic1" || ls[1].StoredID != "\x02synthetic2" {
		e.Fatalf("rows without an id: %+v", ls)
	}
	e.wantClaim("c", synthetic("1").Record, onceward.Parked)
	n, err := e.s.Discard(e.ctx, onceward.Filter{Seqs: []int64{ls[0].Seq}})
	e.must(err)
	if n != 1 {
		e.Fatalf("Discard = %d, want 1", n)
	}
	e.wantClaim("c", synthetic("1").Record, onceward.Duplicate)
}

func (e *env[TTx]) parkBytes() {
	all := hostileIDs()
	for _, id := range all {
		if found, err := e.s.Park(e.ctx, "c", []onceward.Parking{parking(id, "x")}); err != nil || found[0] != onceward.Fresh {
			e.Errorf("Park(%s) = %v, %v", onceward.Quote(id), names(found), err)
		}
	}
	ls := e.lease(onceward.LeaseParams{Queue: onceward.Retries, Consumer: "c", Max: 1000})
	if !slices.Equal(ids(ls), all) {
		e.Errorf("ids that were parked come back changed: %.2000q, want %.2000q", ids(ls), all)
	}
	for _, l := range ls {
		e.wantClaim("c", withRow(l), onceward.Fresh)
	}
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) parkOrder() {
	e.claim("c", rec("m", "x"))
	e.wantPark("c", parking("z", "x"), onceward.Fresh)
	ps := []onceward.Parking{parking("y", "x"), parking("m", "x"), parking("z", "x"), deadParking("a", "x")}
	got, err := e.s.Park(e.ctx, "c", ps)
	e.must(err)
	want := []onceward.Found{onceward.Fresh, onceward.Duplicate, onceward.Parked, onceward.Fresh}
	if !slices.Equal(got, want) {
		e.Fatalf("Park = %v, want %v", names(got), names(want))
	}
	if ls := e.list(retries("c")); !slices.Equal(ids(ls), []string{"z", "y", "a"}) {
		e.Fatalf("rows %q, want them in the order they were parked", ids(ls))
	}
}

func (e *env[TTx]) parkDelay() {
	p := parking("a", "x")
	p.After = 300 * time.Millisecond
	start := time.Now()
	e.wantPark("c", p, onceward.Fresh)
	e.leaseSoon(leaseRetries("c"))
	if took := time.Since(start); took < 290*time.Millisecond {
		e.Fatalf("due after %v, want 300ms", took)
	}
}

func (e *env[TTx]) parkedClaim() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.wantPark("c", deadParking("b", "x"), onceward.Fresh)
	for _, id := range []string{"a", "b"} {
		e.wantClaim("c", rec(id, "x"), onceward.Parked)
		e.wantClaim("d", rec(id, "x"), onceward.Fresh)
		e.put("q", msg(id, "x"))
		e.wantClaim("c", withRow(e.leaseSoon(onceward.LeaseParams{Queue: "q"})), onceward.Parked)
		e.wantRows(onceward.Filter{Queue: "q"}, 0)
	}
	e.wantRecorded("c", recs("a", "b"), false, false)
	e.wantRows(retries("c"), 2)
	e.wantClaim("c", rec("a", "y"), onceward.Fresh) // another body is another message until one is finished
}

func (e *env[TTx]) parkedNoFingerprint() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.wantClaim("c", onceward.Record{ID: "a"}, onceward.Parked)
	zero := parking("b", "x")
	zero.Fingerprint = 0
	e.wantPark("c", zero, onceward.Fresh)
	e.wantPark("c", zero, onceward.Parked)
	e.wantClaim("c", zero.Record, onceward.Parked)
	e.wantClaim("c", rec("b", "x"), onceward.Parked)
}

func (e *env[TTx]) parkedRowClaim() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	l := e.leaseSoon(leaseRetries("c"))
	e.wantClaim("c", rec("a", "x"), onceward.Parked) // its twin from the broker
	e.wantClaim("c", withRow(l), onceward.Fresh)
	e.wantRows(onceward.Filter{}, 0)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
}

func (e *env[TTx]) parkedReplay() {
	e.claim("c", rec("a", "x"))
	e.wantPark("c", deadParking("a", "y"), onceward.OtherBody)
	n, err := e.s.Replay(e.ctx, retries("c"))
	e.must(err)
	if n != 1 {
		e.Fatalf("Replay = %d, want 1", n)
	}
	l := e.leaseSoon(leaseRetries("c"))
	e.wantClaim("c", withRow(l), onceward.OtherBody)
	p := deadParking("a", "y")
	p.Row = &l.Row
	e.wantPark("c", p, onceward.OtherBody)
	if again := e.one(retries("c")); again.Seq != l.Seq || again.State != onceward.Dead {
		e.Fatalf("the row after it died again: %+v", again)
	}
}
