package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

func leaseCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a row has one owner at a time", run: (*env[TTx]).leaseOnce},
		{name: "oldest first, as many as asked for", run: (*env[TTx]).leaseOrder},
		{name: "a lease runs out", run: (*env[TTx]).leaseExpires},
		{name: "a lease that ran out is good until somebody takes over", run: (*env[TTx]).leaseLate},
		{name: "redelivered", run: (*env[TTx]).leaseRedelivered},
		{name: "what is given back at once keeps its place", run: (*env[TTx]).leaseGiveBack},
		{name: "what is given back for later is due on time", run: (*env[TTx]).leaseRequeueLater},
		{name: "a rejected row is a dead letter", run: (*env[TTx]).leaseReject},
		{name: "a former owner changes nothing", run: (*env[TTx]).leaseFormerOwner},
		{name: "finishes what it can", run: (*env[TTx]).leaseFinishSome},
		{name: "finishes once", run: (*env[TTx]).leaseFinishTwice},
		{name: "order per key", run: (*env[TTx]).leaseKeepOrder},
		{name: "order per key behind a later retry", run: (*env[TTx]).leaseKeepOrderLater},
		{name: "order by the key it was parked with", run: (*env[TTx]).leaseOrderKey},
		{name: "many owners", run: (*env[TTx]).leaseMany},
		{name: "many heirs", run: (*env[TTx]).leaseHeirs},
	}
}

var fromQ = onceward.LeaseParams{Queue: "q"}

func (e *env[TTx]) leaseOnce() {
	e.put("q", msg("a", "x"))
	l := e.wantLease(fromQ, "a")[0]
	e.wantLease(fromQ)
	if l.Queue != "q" || l.Seq == 0 || l.State != onceward.InHand || l.Redelivered || l.Attempts != 0 {
		e.Fatalf("leased row: %+v", l)
	}
	if row := e.one(onceward.Filter{}); row.State != onceward.InHand || row.Row != l.Row {
		e.Fatalf("List shows %+v, leased %+v", row, l)
	}
	e.must(e.s.Finish(e.ctx, ack(l.Row)))
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) leaseOrder() {
	e.put("q", msg("c", "x"), msg("a", "x"))
	e.put("q", msg("b", "x"))
	p := fromQ
	p.Max = 2
	ls := e.wantLease(p, "c", "a")
	if ls[0].Seq >= ls[1].Seq {
		e.Fatalf("sequences %d, %d do not grow", ls[0].Seq, ls[1].Seq)
	}
	e.wantLease(p, "b")
}

func (e *env[TTx]) leaseExpires() {
	former, present := e.takenOver("q", "a", "x")
	if !present.Redelivered || former.Redelivered {
		e.Fatalf("Redelivered = %v, then %v", former.Redelivered, present.Redelivered)
	}
	e.wantLease(fromQ)
}

func (e *env[TTx]) leaseLate() {
	e.put("q", msg("a", "x"), msg("b", "x"))
	p := fromQ
	p.For = time.Millisecond
	ls := e.wantLease(p, "a", "b")
	lapse[int](nil, 50*time.Millisecond)
	e.must(e.s.Finish(e.ctx, ack(ls[0].Row)))
	e.wantClaim("c", withRow(ls[1]), onceward.Fresh)
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) leaseRedelivered() {
	e.put("q", msg("a", "x"))
	for i := range 3 {
		l := e.leaseSoon(fromQ)
		if l.Redelivered != (i > 0) {
			e.Fatalf("Redelivered = %v at lease %d", l.Redelivered, i+1)
		}
		e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Requeue}))
	}
}

func (e *env[TTx]) leaseGiveBack() {
	e.put("q", msg("a", "x"), msg("b", "x"), msg("c", "x"), msg("d", "x"))
	p := fromQ
	p.Max = 3
	ls := e.wantLease(p, "a", "b", "c")
	for _, i := range []int{2, 0, 1} {
		e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: ls[i].Row, Verdict: onceward.Requeue}))
	}
	for i, l := range e.wantLease(fromQ, "a", "b", "c", "d") {
		if i < 3 && (l.Seq != ls[i].Seq || l.Fence == ls[i].Fence || l.Attempts != 0) {
			e.Errorf("given back as %+v, leased again as %+v", ls[i], l)
		}
	}
}

func (e *env[TTx]) leaseRequeueLater() {
	e.put("q", msg("a", "x"), msg("b", "x"))
	ls := e.wantLease(fromQ, "a", "b")
	start := time.Now()
	e.must(e.s.Finish(e.ctx,
		onceward.Outcome{Row: ls[0].Row, Verdict: onceward.Requeue, After: 90 * time.Minute, Reason: "later"},
		onceward.Outcome{Row: ls[1].Row, Verdict: onceward.Requeue, After: 300 * time.Millisecond}))
	a := e.one(onceward.Filter{ID: "a"})
	if a.State != onceward.Waiting || a.Due > 90*time.Minute || a.Due < 89*time.Minute || a.Reason != "later" {
		e.Fatalf("the row of 90 minutes: %+v", a)
	}
	if l := e.leaseSoon(fromQ); l.Message.ID != "b" {
		e.Fatalf("leased %q", l.Message.ID)
	}
	if took := time.Since(start); took < 290*time.Millisecond {
		e.Fatalf("due after %v, want 300ms", took)
	}
}

func (e *env[TTx]) leaseReject() {
	e.put("q", msg("a", "x"))
	l := e.wantLease(fromQ, "a")[0]
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Reject, Reason: "no good"}))
	dead := e.one(onceward.Filter{State: onceward.Dead})
	if dead.Seq != l.Seq || dead.Queue != "q" || dead.Reason != "no good" {
		e.Fatalf("the dead letter: %+v", dead)
	}
	e.wantLease(fromQ)
}

func (e *env[TTx]) leaseFormerOwner() {
	former, present := e.takenOver("q", "a", "x")
	for _, v := range []onceward.Verdict{onceward.Ack, onceward.Requeue, onceward.Reject} {
		err := e.s.Finish(e.ctx, onceward.Outcome{Row: former.Row, Verdict: v, Reason: "stale"})
		if !errors.Is(err, onceward.ErrLeaseLost) {
			e.Fatalf("Finish(%d) of a former owner = %v, want ErrLeaseLost", v, err)
		}
	}
	e.wantClaim("c", withRow(former), onceward.Lost)
	p := parking("a", "x")
	p.Row = &former.Row
	e.wantPark("c", p, onceward.Lost)
	row := e.one(onceward.Filter{})
	if row.Row != present.Row || row.State != onceward.InHand || row.Reason != "" || row.Queue != "q" {
		e.Fatalf("a former owner changed the row to %+v", row)
	}
	e.must(e.s.Finish(e.ctx, ack(present.Row)))
}

func (e *env[TTx]) leaseFinishSome() {
	former, _ := e.takenOver("q", "m", "x")
	e.put("r", msg("a", "x"), msg("b", "x"), msg("c", "x"))
	ls := e.wantLease(onceward.LeaseParams{Queue: "r"}, "a", "b", "c")
	err := e.s.Finish(e.ctx, ack(ls[0].Row), ack(former.Row), onceward.Outcome{Row: ls[1].Row, Verdict: onceward.Requeue},
		ack(onceward.Row{Seq: 1 << 60, Fence: 1}), onceward.Outcome{Row: ls[2].Row, Verdict: onceward.Reject, Reason: "no"})
	if !errors.Is(err, onceward.ErrLeaseLost) {
		e.Fatalf("Finish = %v, want ErrLeaseLost", err)
	}
	e.wantRows(onceward.Filter{Queue: "r", ID: "a"}, 0)
	e.wantRows(onceward.Filter{Queue: "r", ID: "b", State: onceward.Waiting}, 1)
	e.wantRows(onceward.Filter{Queue: "r", ID: "c", State: onceward.Dead}, 1)
	e.wantRows(onceward.Filter{Queue: "q", State: onceward.InHand}, 1)
}

func (e *env[TTx]) leaseFinishTwice() {
	for _, v := range []onceward.Verdict{onceward.Ack, onceward.Requeue, onceward.Reject} {
		id := fmt.Sprint(v)
		e.put(id, msg("a", "x"))
		l := e.wantLease(onceward.LeaseParams{Queue: id}, "a")[0]
		o := onceward.Outcome{Row: l.Row, Verdict: v, Reason: "first"}
		e.must(e.s.Finish(e.ctx, o))
		for _, again := range []onceward.Verdict{onceward.Ack, onceward.Requeue, onceward.Reject} {
			o.Verdict, o.Reason = again, "second"
			if err := e.s.Finish(e.ctx, o); !errors.Is(err, onceward.ErrLeaseLost) {
				e.Fatalf("Finish(%d) after Finish(%d) = %v, want ErrLeaseLost", again, v, err)
			}
		}
		if v != onceward.Ack {
			if row := e.one(onceward.Filter{Queue: id}); row.Reason == "second" {
				e.Fatalf("a second Finish changed the row to %+v", row)
			}
		}
	}
}

func withKey(id, key string) *onceward.Message {
	m := msg(id, "x")
	m.Key = key
	return m
}

func (e *env[TTx]) leaseKeepOrder() {
	e.put("q", withKey("a1", "a"), withKey("a2", "a"), withKey("b1", "b"), withKey("A1", "A"), msg("u1", "x"), msg("u2", "x"), withKey("a3", "a"))
	p := fromQ
	p.KeepOrder = true
	ls := e.wantLease(p, "a1", "b1", "A1", "u1", "u2")
	e.wantLease(p) // a1 is in hand
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: ls[0].Row, Verdict: onceward.Requeue}))
	ls = e.wantLease(p, "a1")
	e.must(e.s.Finish(e.ctx, ack(ls[0].Row)))
	ls = e.wantLease(p, "a2")
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: ls[0].Row, Verdict: onceward.Reject, Reason: "no"}))
	e.wantLease(p, "a3") // a dead letter holds up nothing
}

func (e *env[TTx]) leaseKeepOrderLater() {
	e.put("q", withKey("a1", "a"), withKey("a2", "a"))
	e.put("other", withKey("a0", "a"))
	p := fromQ
	p.KeepOrder = true
	l := e.wantLease(p, "a1")[0]
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: l.Row, Verdict: onceward.Requeue, After: time.Hour}))
	e.wantLease(p)
	e.wantLease(fromQ, "a2") // without KeepOrder nothing holds it
	p.Queue = "other"
	e.wantLease(p, "a0")
}

func (e *env[TTx]) leaseOrderKey() {
	for _, id := range []string{"1", "2"} {
		one := parking(id, "x")
		one.OrderKey, one.Message.Key = "same", "key of "+id
		e.wantPark("c", one, onceward.Fresh)
	}
	p := leaseRetries("c")
	p.KeepOrder = true
	l := e.wantLease(p, "1")[0]
	if l.Message.Key != "key of 1" {
		e.Fatalf("the message's key is %q", l.Message.Key)
	}
	e.wantLease(p)
}

func (e *env[TTx]) leaseMany() {
	var ms []*onceward.Message
	for i := range 200 {
		ms = append(ms, msg(fmt.Sprint(i), "x"))
	}
	e.put("q", ms...)
	e.raceForLeases(len(ms))
}

func (e *env[TTx]) leaseHeirs() {
	var ms []*onceward.Message
	for i := range 40 {
		ms = append(ms, msg(fmt.Sprint(i), "x"))
	}
	e.put("q", ms...)
	former := e.lease(onceward.LeaseParams{Queue: "q", For: short})
	e.raceForLeases(len(ms))
	for _, l := range former {
		if err := e.s.Finish(e.ctx, ack(l.Row)); !errors.Is(err, onceward.ErrLeaseLost) {
			e.Fatalf("Finish of a former owner = %v, want ErrLeaseLost", err)
		}
	}
	e.wantRows(onceward.Filter{Queue: "q", State: onceward.InHand}, len(ms))
}

// raceForLeases lets several owners lease until n rows are leased, and checks that each has one.
func (e *env[TTx]) raceForLeases(n int) {
	e.Helper()
	r := race{seen: map[string]int{}, n: n}
	var wg sync.WaitGroup
	deadline := time.Now().Add(patience)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				ls, err := e.s.Lease(e.ctx, onceward.LeaseParams{Queue: "q", Max: 7, For: long})
				if err != nil && !putAside(err) {
					e.Errorf("Lease: %v", err)
					return
				}
				if r.note(ls) {
					return
				}
			}
		})
	}
	wg.Wait()
	for id, times := range r.seen {
		if times != 1 {
			e.Errorf("%s was leased %d times", id, times)
		}
	}
	if len(r.seen) != n {
		e.Errorf("%d of %d were leased", len(r.seen), n)
	}
}

type race struct {
	mu   sync.Mutex
	seen map[string]int
	n    int
}

// note reports whether all have been seen.
func (r *race) note(ls []onceward.Leased) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range ls {
		r.seen[l.Message.ID]++
	}
	return len(r.seen) == r.n
}
