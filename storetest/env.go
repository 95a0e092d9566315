package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward"
)

// env is what a case works with.
type env[TTx any] struct {
	*testing.T
	ctx context.Context
	h   Harness[TTx]
	in  Instance[TTx]
	s   onceward.Store[TTx]
}

// patience is how long the suite waits for what must happen.
const patience = 15 * time.Second

// short is a lease that runs out while a case waits for it.
const short = 150 * time.Millisecond

// long is a lease that does not run out during a case.
const long = 10 * time.Minute

func rec(id, body string) onceward.Record {
	return onceward.Record{ID: onceward.StoredID(id), Fingerprint: onceward.Fingerprint([]byte(body))}
}

func recs(ids ...string) []onceward.Record {
	rs := make([]onceward.Record, len(ids))
	for i, id := range ids {
		rs[i] = rec(id, "body of "+id)
	}
	return rs
}

func msg(id, body string) *onceward.Message {
	return &onceward.Message{ID: id, Topic: "topic", Body: []byte(body)}
}

func parking(id, body string) onceward.Parking {
	return onceward.Parking{Record: rec(id, body), Message: *msg(id, body), Reason: "reason of " + id}
}

func deadParking(id, body string) onceward.Parking {
	p := parking(id, body)
	p.Dead = true
	return p
}

func ack(r onceward.Row) onceward.Outcome {
	return onceward.Outcome{Row: r, Verdict: onceward.Ack}
}

func (e *env[TTx]) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("unexpected error: %v", err)
	}
}

// claim claims in a transaction of its own and commits.
func (e *env[TTx]) claim(consumer string, rs ...onceward.Record) []onceward.Found {
	e.Helper()
	var found []onceward.Found
	e.must(e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		var err error
		found, err = e.s.Claim(ctx, tx, consumer, rs)
		return err
	}))
	return found
}

func (e *env[TTx]) wantClaim(consumer string, r onceward.Record, want ...onceward.Found) {
	e.Helper()
	got := e.claim(consumer, r)
	if len(got) != 1 || !slices.Contains(want, got[0]) {
		e.Fatalf("Claim(%q, %s) = %v, want one of %v", consumer, onceward.Quote(r.ID), names(got), names(want))
	}
}

func (e *env[TTx]) wantPark(consumer string, p onceward.Parking, want ...onceward.Found) {
	e.Helper()
	got, err := e.s.Park(e.ctx, consumer, []onceward.Parking{p})
	e.must(err)
	if len(got) != 1 || !slices.Contains(want, got[0]) {
		e.Fatalf("Park(%q, %s) = %v, want one of %v", consumer, onceward.Quote(p.ID), names(got), names(want))
	}
}

func (e *env[TTx]) wantRecorded(consumer string, rs []onceward.Record, want ...bool) {
	e.Helper()
	got, err := e.s.Recorded(e.ctx, consumer, rs)
	e.must(err)
	if !slices.Equal(got, want) {
		e.Fatalf("Recorded(%q) = %v, want %v", consumer, got, want)
	}
}

func (e *env[TTx]) wantEffects(want map[string]int) {
	e.Helper()
	got := e.in.Effects(e.T)
	for id, n := range got {
		if want[id] != n {
			e.Fatalf("effects = %v, want %v", got, want)
		}
	}
	for id, n := range want {
		if got[id] != n {
			e.Fatalf("effects = %v, want %v", got, want)
		}
	}
}

func (e *env[TTx]) put(queue string, ms ...*onceward.Message) {
	e.Helper()
	es := make([]onceward.Entry, len(ms))
	for i, m := range ms {
		es[i] = onceward.Entry{Queue: queue, Message: *m}
	}
	e.must(e.s.Put(e.ctx, es...))
}

func (e *env[TTx]) list(f onceward.Filter) []onceward.Leased {
	e.Helper()
	ls, err := e.s.List(e.ctx, f)
	e.must(err)
	return ls
}

// one is the only row that f selects.
func (e *env[TTx]) one(f onceward.Filter) onceward.Leased {
	e.Helper()
	ls := e.list(f)
	if len(ls) != 1 {
		e.Fatalf("%d rows match %+v, want 1: %v", len(ls), f, ids(ls))
	}
	return ls[0]
}

func (e *env[TTx]) wantRows(f onceward.Filter, n int) {
	e.Helper()
	if ls := e.list(f); len(ls) != n {
		e.Fatalf("%d rows match %+v, want %d: %v", len(ls), f, n, ids(ls))
	}
}

// lease leases without waiting.
func (e *env[TTx]) lease(p onceward.LeaseParams) []onceward.Leased {
	e.Helper()
	if p.Max == 0 {
		p.Max = 100
	}
	if p.For == 0 {
		p.For = long
	}
	ls, err := e.s.Lease(e.ctx, p)
	e.must(err)
	return ls
}

// leaseSoon leases exactly one row, and waits until it is due.
func (e *env[TTx]) leaseSoon(p onceward.LeaseParams) onceward.Leased {
	e.Helper()
	var ls []onceward.Leased
	e.eventually("a row to lease", func() bool {
		ls = e.lease(p)
		return len(ls) > 0
	})
	if len(ls) != 1 {
		e.Fatalf("leased %d rows, want 1: %v", len(ls), ids(ls))
	}
	return ls[0]
}

func (e *env[TTx]) wantLease(p onceward.LeaseParams, want ...string) []onceward.Leased {
	e.Helper()
	ls := e.lease(p)
	if got := ids(ls); !slices.Equal(got, want) {
		e.Fatalf("leased %q, want %q", got, want)
	}
	return ls
}

// takenOver puts one message into a queue and leases it twice, the second time after the first lease
// has run out. It returns what the former and the present owner hold.
func (e *env[TTx]) takenOver(queue, id, body string) (former, present onceward.Leased) {
	e.Helper()
	e.put(queue, msg(id, body))
	former = e.leaseSoon(onceward.LeaseParams{Queue: queue, For: short})
	present = e.leaseSoon(onceward.LeaseParams{Queue: queue})
	if former.Seq != present.Seq || former.Fence == present.Fence {
		e.Fatalf("a row that is leased again has row %+v, want the sequence of %+v and another fence", present.Row, former.Row)
	}
	return former, present
}

func (e *env[TTx]) eventually(what string, ok func() bool) {
	e.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			e.Fatalf("waited %v in vain for %s", patience, what)
		}
		<-tick.C
	}
}

// within waits for a value and fails if none comes.
func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v in vain for %s", patience, what)
		panic("unreachable")
	}
}

// lapse lets d pass unless ch delivers first, which it reports.
func lapse[T any](ch <-chan T, d time.Duration) (T, bool) {
	select {
	case v := <-ch:
		return v, true
	case <-time.After(d):
		var zero T
		return zero, false
	}
}

func ids(ls []onceward.Leased) []string {
	s := make([]string, len(ls))
	for i := range ls {
		s[i] = ls[i].Message.ID
	}
	return s
}

func names(fs []onceward.Found) []string {
	all := [...]string{"none", "Fresh", "Duplicate", "OtherBody", "Parked", "Held", "Lost", "Busy"}
	s := make([]string, len(fs))
	for i, f := range fs {
		s[i] = fmt.Sprintf("Found(%d)", f)
		if int(f) < len(all) {
			s[i] = all[f]
		}
	}
	return s
}
