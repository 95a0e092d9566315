package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

func inspectCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "stats", run: (*env[TTx]).inspectStats},
		{name: "filters", run: (*env[TTx]).inspectFilters},
		{name: "pages", run: (*env[TTx]).inspectPages},
		{name: "an empty filter", run: (*env[TTx]).inspectNoFilter},
		{name: "replays dead letters", run: (*env[TTx]).replay},
		{name: "replays nothing else", run: (*env[TTx]).replayOnlyDead},
		{name: "discards for good", run: (*env[TTx]).discard},
		{name: "discards nothing else", run: (*env[TTx]).discardOnlyDead},
		{name: "limits", run: (*env[TTx]).inspectLimits},
	}
}

func (e *env[TTx]) inspectStats() {
	stats, err := e.s.Stats(e.ctx)
	e.must(err)
	if len(stats) != 0 {
		e.Fatalf("Stats of an empty store: %+v", stats)
	}
	e.claim("c", recs("f")...)
	e.put("q", msg("a", "x"), msg("b", "x"), msg("c", "x"))
	e.lease(onceward.LeaseParams{Queue: "q", Max: 1})
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.wantPark("c", deadParking("b", "x"), onceward.Fresh)
	e.wantPark("d", deadParking("b", "x"), onceward.Fresh)
	stats, err = e.s.Stats(e.ctx)
	e.must(err)
	want := map[[2]string][3]int64{
		{"q", ""}: {2, 1, 0}, {onceward.Retries, "c"}: {1, 0, 1}, {onceward.Retries, "d"}: {0, 0, 1},
	}
	if len(stats) != len(want) {
		e.Fatalf("Stats = %+v, want %v", stats, want)
	}
	for _, s := range stats {
		if got := [3]int64{s.Waiting, s.InHand, s.Dead}; got != want[[2]string{s.Queue, s.Consumer}] {
			e.Errorf("Stats of %q, %q = %v", s.Queue, s.Consumer, got)
		}
		if s.Oldest < 0 || s.Oldest > time.Minute || s.Waiting+s.InHand == 0 && s.Oldest != 0 {
			e.Errorf("oldest of %q, %q: %v", s.Queue, s.Consumer, s.Oldest)
		}
	}
}

// assorted writes rows for tests of filters, and returns their sequences by a label.
func (e *env[TTx]) assorted() map[string]int64 {
	e.put("q", msg("a", "x"), msg("A", "x"), msg("b", "x"))
	e.put("Q", msg("a", "x"))
	for _, c := range []string{"c", "C"} {
		for _, id := range []string{"a", "b"} {
			p := deadParking(id, "x")
			p.Reason = "no account " + id + c + " 100%_\\ sure"
			e.wantPark(c, p, onceward.Fresh)
		}
		e.wantPark(c, parking("w", "x"), onceward.Fresh)
	}
	seqs := map[string]int64{}
	for _, l := range e.list(onceward.Filter{}) {
		seqs[l.Queue+l.Consumer+l.Message.ID] = l.Seq
	}
	if len(seqs) != 10 {
		e.Fatalf("rows %v", seqs)
	}
	return seqs
}

func (e *env[TTx]) inspectFilters() {
	seqs := e.assorted()
	r := onceward.Retries
	for _, c := range []struct {
		f    onceward.Filter
		want []string
	}{
		{onceward.Filter{Queue: "q"}, []string{"qa", "qA", "qb"}},
		{onceward.Filter{Queue: "q "}, nil},
		{onceward.Filter{Consumer: "c"}, []string{r + "ca", r + "cb", r + "cw"}},
		{onceward.Filter{ID: "a"}, []string{"qa", "Qa", r + "ca", r + "Ca"}},
		{onceward.Filter{ID: "a", Queue: r}, []string{r + "ca", r + "Ca"}},
		{onceward.Filter{State: onceward.Dead, Consumer: "C"}, []string{r + "Ca", r + "Cb"}},
		{onceward.Filter{State: onceward.Waiting, Consumer: "C"}, []string{r + "Cw"}},
		{onceward.Filter{State: onceward.InHand}, nil},
		{onceward.Filter{Reason: "account b"}, []string{r + "cb", r + "Cb"}},
		{onceward.Filter{Reason: `100%_\ s`, ID: "b"}, []string{r + "cb", r + "Cb"}},
		{onceward.Filter{Reason: "account%sure"}, nil},
		{onceward.Filter{Reason: "no_account"}, nil},
		{onceward.Filter{Seqs: []int64{seqs["qb"], seqs["qa"], 1 << 60}}, []string{"qa", "qb"}},
		{onceward.Filter{Seqs: []int64{seqs["qb"], seqs["qa"]}, ID: "b"}, []string{"qb"}},
		{onceward.Filter{ID: "'; --"}, nil},
	} {
		var got []string
		for _, l := range e.list(c.f) {
			got = append(got, l.Queue+l.Consumer+l.Message.ID)
		}
		if !slices.Equal(got, c.want) {
			e.Errorf("List(%+v) = %q, want %q", c.f, got, c.want)
		}
	}
}

func (e *env[TTx]) inspectPages() {
	e.assorted()
	all := e.list(onceward.Filter{})
	var got []onceward.Leased
	f := onceward.Filter{Limit: 3}
	for {
		page := e.list(f)
		if len(page) > 3 {
			e.Fatalf("a page of %d rows, want at most 3", len(page))
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		f.After = page[len(page)-1].Seq
	}
	if !slices.Equal(ids(got), ids(all)) {
		e.Fatalf("pages give %q, want %q", ids(got), ids(all))
	}
	var ms []*onceward.Message
	for i := range 120 {
		ms = append(ms, msg(string(rune('a'+i)), "x"))
	}
	e.put("many", ms...)
	e.wantRows(onceward.Filter{Queue: "many"}, 100) // the default
	e.wantRows(onceward.Filter{Queue: "many", Limit: 1000}, 120)
}

func (e *env[TTx]) inspectNoFilter() {
	e.wantPark("c", deadParking("a", "x"), onceward.Fresh)
	for _, f := range []onceward.Filter{{}, {State: onceward.Dead}, {Limit: 5}, {After: 1}} {
		if n, err := e.s.Replay(e.ctx, f); !errors.Is(err, onceward.ErrNoFilter) {
			e.Errorf("Replay(%+v) = %d, %v, want ErrNoFilter", f, n, err)
		}
		if n, err := e.s.Discard(e.ctx, f); !errors.Is(err, onceward.ErrNoFilter) {
			e.Errorf("Discard(%+v) = %d, %v, want ErrNoFilter", f, n, err)
		}
	}
	e.wantRows(onceward.Filter{State: onceward.Dead}, 1)
}

func (e *env[TTx]) wantReplay(f onceward.Filter, want int) {
	e.Helper()
	n, err := e.s.Replay(e.ctx, f)
	e.must(err)
	if n != want {
		e.Fatalf("Replay(%+v) = %d, want %d", f, n, want)
	}
}

func (e *env[TTx]) wantDiscard(f onceward.Filter, want int) {
	e.Helper()
	n, err := e.s.Discard(e.ctx, f)
	e.must(err)
	if n != want {
		e.Fatalf("Discard(%+v) = %d, want %d", f, n, want)
	}
}

func (e *env[TTx]) replay() {
	p := deadParking("a", "x")
	p.Attempts, p.Origin = 10, "place 7"
	e.wantPark("c", p, onceward.Fresh)
	before := e.one(retries("c"))
	e.wantReplay(onceward.Filter{ID: "a"}, 1)
	e.wantReplay(onceward.Filter{ID: "a"}, 0)
	l := e.leaseSoon(leaseRetries("c"))
	if l.Seq != before.Seq || l.Attempts != 0 || l.Origin != "place 7" {
		e.Fatalf("replayed: %+v", l)
	}
	e.wantSame(l.Message, p.Message)
	e.wantClaim("c", withRow(l), onceward.Fresh) // the same id: no duplicate
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) replayOnlyDead() {
	p := parking("a", "x")
	p.Attempts, p.After = 3, time.Hour
	e.wantPark("c", p, onceward.Fresh)
	e.wantPark("c", parking("b", "x"), onceward.Fresh)
	l := e.leaseSoon(leaseRetries("c"))
	e.wantReplay(retries("c"), 0)
	if a := e.one(onceward.Filter{ID: "a"}); a.Attempts != 3 || a.Due < 59*time.Minute || a.State != onceward.Waiting {
		e.Fatalf("Replay changed a waiting row: %+v", a)
	}
	if b := e.one(onceward.Filter{ID: "b"}); b.State != onceward.InHand || b.Row != l.Row {
		e.Fatalf("Replay changed a leased row: %+v", b)
	}
	e.put("q", msg("d", "x"))
	d := e.wantLease(fromQ, "d")[0]
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: d.Row, Verdict: onceward.Reject}))
	e.wantReplay(onceward.Filter{Queue: "q"}, 1)
	e.wantLease(fromQ, "d")
}

func (e *env[TTx]) discard() {
	e.wantPark("c", deadParking("a", "x"), onceward.Fresh)
	e.wantDiscard(onceward.Filter{ID: "a"}, 1)
	e.wantRows(onceward.Filter{}, 0)
	e.wantRecorded("c", recs("a"), true)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
	e.wantClaim("c", rec("a", "y"), onceward.OtherBody)
	e.wantPark("c", parking("a", "x"), onceward.Duplicate)
	e.wantClaim("d", rec("a", "x"), onceward.Fresh)
	// A dead letter because of another body: its id was finished before.
	e.claim("c", rec("b", "x"))
	e.wantPark("c", deadParking("b", "y"), onceward.OtherBody)
	e.wantDiscard(retries("c"), 1)
	e.wantClaim("c", rec("b", "x"), onceward.Duplicate)
	e.wantClaim("c", rec("b", "y"), onceward.Duplicate)
	// A dead row of a queue that is nobody's.
	e.put("q", msg("z", "x"))
	z := e.wantLease(fromQ, "z")[0]
	e.must(e.s.Finish(e.ctx, onceward.Outcome{Row: z.Row, Verdict: onceward.Reject}))
	e.wantDiscard(onceward.Filter{Queue: "q"}, 1)
	e.wantRows(onceward.Filter{}, 0)
	known, err := e.s.Known(e.ctx, "")
	e.must(err)
	if known {
		e.Fatal("a discarded message of nobody was recorded")
	}
}

func (e *env[TTx]) discardOnlyDead() {
	e.wantPark("c", parking("a", "x"), onceward.Fresh)
	e.wantPark("c", parking("b", "x"), onceward.Fresh)
	e.wantLease(onceward.LeaseParams{Queue: onceward.Retries, Consumer: "c", Max: 1}, "a")
	e.wantDiscard(retries("c"), 0)
	e.wantRows(retries("c"), 2)
	e.wantRecorded("c", recs("a", "b"), false, false)
}

func (e *env[TTx]) inspectLimits() {
	for _, id := range []string{"a", "b", "d", "f", "g"} {
		e.wantPark("c", deadParking(id, "x"), onceward.Fresh)
	}
	f := retries("c")
	f.Limit = 2
	e.wantReplay(f, 2)
	e.wantDiscard(f, 2)
	e.wantDiscard(retries("c"), 1)
	ls := e.list(retries("c"))
	if len(ls) != 2 || ls[0].State != onceward.Waiting || ls[1].State != onceward.Waiting {
		e.Fatalf("left: %+v", ls)
	}
}
