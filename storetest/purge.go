package storetest

import (
	"fmt"
	"time"

	"github.com/onceward/onceward"
)

func purgeCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "keeps what is young", run: (*env[TTx]).purgeYoung},
		{name: "removes what is old, at most limit", run: (*env[TTx]).purgeLimit},
		{name: "leaves other consumers alone", run: (*env[TTx]).purgeConsumers},
		{name: "keeps what has a parked row", run: (*env[TTx]).purgeParked},
		{name: "comes round past what it keeps", run: (*env[TTx]).purgeComesRound},
		{name: "removes counts", run: (*env[TTx]).purgeCounts},
	}
}

func (e *env[TTx]) purge(keep time.Duration, limit int) int {
	e.Helper()
	n, err := e.s.Purge(e.ctx, "c", keep, limit)
	e.must(err)
	if n < 0 || n > limit {
		e.Fatalf("Purge removed %d, with a limit of %d", n, limit)
	}
	return n
}

// purgeAll purges until it has come round, and returns how many were removed.
func (e *env[TTx]) purgeAll(limit int) int {
	e.Helper()
	lapse[int](nil, 5*time.Millisecond) // so that what was just written is older than keep
	sum := 0
	for range 1000 {
		n := e.purge(time.Millisecond, limit)
		sum += n
		if n < limit {
			return sum
		}
	}
	e.Fatal("Purge never comes round")
	return 0
}

func (e *env[TTx]) purgeYoung() {
	e.claim("c", recs("a", "b")...)
	if n := e.purge(time.Hour, 10); n != 0 {
		e.Fatalf("Purge removed %d young records", n)
	}
	e.wantRecorded("c", recs("a", "b"), true, true)
}

func (e *env[TTx]) purgeLimit() {
	e.claim("c", recs("a", "b", "d", "e", "f")...)
	lapse[int](nil, 5*time.Millisecond)
	for _, want := range []int{2, 2, 1, 0} {
		if n := e.purge(time.Millisecond, 2); n != want {
			e.Fatalf("Purge removed %d, want %d", n, want)
		}
	}
	e.wantClaim("c", recs("a")[0], onceward.Fresh)
}

func (e *env[TTx]) purgeConsumers() {
	e.claim("c", recs("a")...)
	e.claim("C", recs("a")...)
	e.claim("d", recs("a")...)
	if n := e.purgeAll(10); n != 1 {
		e.Fatalf("Purge removed %d, want 1", n)
	}
	e.wantRecorded("C", recs("a"), true)
	e.wantRecorded("d", recs("a"), true)
}

func (e *env[TTx]) purgeParked() {
	e.claim("c", rec("dead", "x"), rec("waiting", "x"), rec("in hand", "x"), rec("none", "x"), rec("elsewhere", "x"))
	for _, id := range []string{"dead", "waiting", "in hand"} {
		e.wantPark("c", deadParking(id, "y"), onceward.OtherBody)
	}
	e.wantReplay(onceward.Filter{ID: "waiting"}, 1)
	e.wantReplay(onceward.Filter{ID: "in hand"}, 1)
	e.wantLease(leaseRetries("c"), "waiting", "in hand")
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: e.one(onceward.Filter{ID: "waiting"}).Row, Verdict: onceward.Requeue}))
	e.put("q", msg("elsewhere", "x"))
	e.wantPark("d", parking("none", "x"), onceward.Fresh)
	if n := e.purgeAll(10); n != 2 {
		e.Fatalf("Purge removed %d, want 2", n)
	}
	e.wantRecorded("c", recs("dead", "waiting", "in hand", "none", "elsewhere"), true, true, true, false, false)
	e.wantRows(retries("c"), 3)
}

func (e *env[TTx]) purgeComesRound() {
	for i := range 12 {
		id := fmt.Sprint(i)
		e.claim("c", rec(id, "x"))
		if i%3 != 2 {
			e.wantPark("c", deadParking(id, "y"), onceward.OtherBody)
		}
	}
	if n := e.purgeAll(2); n != 4 {
		e.Fatalf("Purge removed %d, want 4", n)
	}
	for i := range 12 {
		e.wantRecorded("c", recs(fmt.Sprint(i)), i%3 != 2)
	}
}

func (e *env[TTx]) purgeCounts() {
	e.wantAttempt("c", rec("a", "x"), 1)
	e.wantAttempt("c", rec("a", "x"), 2)
	if n := e.purge(time.Hour, 10); n != 0 {
		e.Fatalf("Purge removed %d young counts", n)
	}
	e.wantAttempt("c", rec("a", "x"), 3)
	if n := e.purgeAll(10); n != 1 {
		e.Fatalf("Purge removed %d, want the count", n)
	}
	e.wantAttempt("c", rec("a", "x"), 1)
}
