package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

func explainCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "nothing known", run: (*env[TTx]).explainNothing},
		{name: "finished, waiting, in hand, dead", run: (*env[TTx]).explainStates},
		{name: "what it emitted", run: (*env[TTx]).explainEmitted},
		{name: "ids that look like patterns", run: (*env[TTx]).explainPatterns},
		{name: "long ids", run: (*env[TTx]).explainLong},
	}
}

// explain returns what is known, each as "what consumer queue id".
func (e *env[TTx]) explain(id string) []string {
	e.Helper()
	ts, err := e.s.Explain(e.ctx, id)
	e.must(err)
	got := []string{}
	for i, tr := range ts {
		got = append(got, strings.Join([]string{tr.What, tr.Consumer, tr.Queue, tr.ID}, " "))
		if d := time.Since(tr.At).Abs(); d > time.Hour {
			e.Errorf("%s: at %v", got[i], tr.At)
		}
		if i > 0 && tr.At.Before(ts[i-1].At) {
			e.Errorf("%s comes before %s, and is younger", got[i-1], got[i])
		}
	}
	return got
}

func (e *env[TTx]) wantExplain(id string, want ...string) {
	e.Helper()
	got := e.explain(id)
	slices.Sort(got) // what happened within one tick of the clock has no order
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.Errorf("Explain(%s) = %q, want %q", onceward.Quote(id), got, want)
	}
}

func (e *env[TTx]) explainNothing() {
	e.claim("c", recs("b")...)
	e.put("q", msg("b", "x"))
	e.wantExplain("a")
	e.wantExplain("B")
}

func (e *env[TTx]) explainStates() {
	e.claim("c", rec("a", "x"))
	e.wantPark("d", deadParking("a", "x"), onceward.Fresh)
	e.wantPark("e", parking("a", "x"), onceward.Fresh)
	e.put("q", msg("a", "x"))
	e.wantLease(fromQ, "a")
	e.wantExplain("a", "finished c  a", "dead d retries a", "waiting e retries a", "in hand  q a")
	ts, err := e.s.Explain(e.ctx, "a")
	e.must(err)
	for _, tr := range ts {
		if tr.What == "dead" && tr.Reason != "reason of a" {
			e.Errorf("reason of the dead letter: %q", tr.Reason)
		}
	}
}

func (e *env[TTx]) explainEmitted() {
	parent := onceward.ID("order", 42, "created")
	child := func(label string) string {
		d := onceward.Delivery{Message: onceward.Message{ID: parent}}
		return d.Child(label)
	}
	e.claim("c", recs(parent, child("finished"))...)
	e.must(e.append(nil, onceward.Outbox, msg(child("mail"), "x"), msg(parent+"0", "x"), msg(parent, "x")))
	e.wantPark("d", deadParking(child("dead"), "x"), onceward.Fresh)
	e.claim("c", recs(onceward.ID("order", 42, "created", "late"), "xorder:42:created#:a")...)
	e.wantExplain(parent, "finished c  "+parent, "waiting  outbox "+parent,
		"emitted, finished c  "+child("finished"), "emitted, waiting  outbox "+child("mail"), "emitted, dead d retries "+child("dead"))
}

func (e *env[TTx]) explainPatterns() {
	for _, id := range []string{"a%b", "a_b", `a\b`, "axb", "a%b#c:l", "a_b#c:l", `a\b#c:l`, "axb#c:l", "A_b#c:l", "\xffb", "\xffb#c:l", "\xff"} {
		e.claim("c", recs(id)...)
	}
	for _, id := range []string{"a%b", "a_b", `a\b`, "axb", "\xffb"} {
		e.wantExplain(id, "finished c  "+id, "emitted, finished c  "+id+"#c:l")
	}
	e.wantExplain("\xff", "finished c  \xff")
	e.wantExplain("a")
}

func (e *env[TTx]) explainLong() {
	long := strings.Repeat("k", 300)
	e.claim("c", recs(long)...)
	e.put("q", msg(long, "x"))
	e.wantExplain(long, "finished c  "+long, "waiting  q "+long)
	e.wantExplain(long + "k")
	uuid := "0190c8a4-5b6e-7abc-8def-0123456789ab"
	e.claim("c", recs(uuid, uuid+"#c:l")...)
	e.wantExplain(uuid, "finished c  "+uuid, "emitted, finished c  "+uuid+"#c:l")
}
