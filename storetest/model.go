package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward"
)

// SeedVar is the environment variable that makes the random case run again as it did: its value is
// the seed that a failure prints.
const SeedVar = "ONCEWARD_SEED"

func modelCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "random steps", run: (*env[TTx]).randomSteps},
	}
}

func (e *env[TTx]) randomSteps() {
	seed, steps := rand.Uint64(), 300
	if s := os.Getenv(SeedVar); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		e.must(err)
	}
	d := &driver[TTx]{env: e, rnd: rand.New(rand.NewPCG(seed, 1)), m: newModel()}
	e.Cleanup(func() {
		if !e.Failed() {
			return
		}
		e.Logf("run it again with %s=%d; the steps:", SeedVar, seed)
		for i, s := range d.steps {
			e.Logf("%4d %s", i, s)
		}
	})
	ops := []func(){d.claimSome, d.claimSome, d.claimLeased, d.claimLeased, d.parkOne, d.parkLeased, d.putSome, d.leaseSome, d.leaseSome, d.finishOne, d.operate, d.attempt}
	for range steps {
		ops[d.rnd.IntN(len(ops))]()
		d.compare()
		if e.Failed() {
			return
		}
	}
}

// driver does the same with the store and with the model, and compares.
type driver[TTx any] struct {
	*env[TTx]
	rnd    *rand.Rand
	m      *model
	leases []onceward.Leased // of any time: some are lost
	steps  []string
}

func (d *driver[TTx]) logf(format string, args ...any) {
	d.steps = append(d.steps, fmt.Sprintf(format, args...))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (d *driver[TTx]) consumer() string { return pick(d.rnd, "c", "d") }
func (d *driver[TTx]) id() string       { return strconv.Itoa(d.rnd.IntN(8)) }
func (d *driver[TTx]) body() string     { return pick(d.rnd, "x", "x", "x", "y") }
func (d *driver[TTx]) key() string      { return pick(d.rnd, "", "", "k", "j") }

// lease0 is a lease of any time, preferably a recent one.
func (d *driver[TTx]) lease0() (onceward.Leased, bool) {
	if len(d.leases) == 0 {
		return onceward.Leased{}, false
	}
	from := max(0, len(d.leases)-6)
	return d.leases[from+d.rnd.IntN(len(d.leases)-from)], true
}

func (d *driver[TTx]) claimSome() {
	var rs []onceward.Record
	var bodies []string
	for _, i := range d.rnd.Perm(8)[:1+d.rnd.IntN(4)] {
		bodies = append(bodies, d.body())
		rs = append(rs, keyed(rec(strconv.Itoa(i), bodies[len(bodies)-1]), d.key()))
	}
	d.claimAll(d.consumer(), rs, bodies)
}

func (d *driver[TTx]) claimLeased() {
	l, ok := d.lease0()
	if !ok {
		return
	}
	c := l.Consumer
	if c == "" {
		c = d.consumer()
	}
	d.claimAll(c, []onceward.Record{keyed(withRow(l), d.m.keyOf(l.Seq))}, []string{string(l.Message.Body)})
}

func (d *driver[TTx]) claimAll(c string, rs []onceward.Record, bodies []string) {
	for i := range rs {
		rs[i].Counted = bodies[i] == "x" && d.m.counts[c+rs[i].ID] > 0
	}
	rollBack := errors.New("roll back")
	var how error
	if d.rnd.IntN(4) == 0 {
		how = rollBack
	}
	var found []onceward.Found
	err := d.s.InTx(d.ctx, func(ctx context.Context, tx TTx) (err error) {
		if found, err = d.s.Claim(ctx, tx, c, rs); err != nil {
			return err
		}
		return how
	})
	if !errors.Is(err, how) {
		d.Fatalf("InTx = %v, want %v", err, how)
	}
	var wants [][]onceward.Found // all are judged by what was there before
	for i, r := range rs {
		wants = append(wants, d.m.claim(c, r, bodies[i]))
	}
	for i, r := range rs {
		d.logf("claim %s id %s body %s key %q row %v commit %v: %v", c, r.ID, bodies[i], r.OrderKey, r.Row, how == nil, names(found[i:i+1]))
		if !slices.Contains(wants[i], found[i]) {
			d.Fatalf("Claim of %s found %v, want one of %v", r.ID, names(found[i:i+1]), names(wants[i]))
		}
		if how == nil {
			d.m.claimed(c, r, found[i])
		}
	}
}

func (d *driver[TTx]) parkOne() {
	p := parking(d.id(), d.body())
	p.OrderKey = d.key()
	d.park(d.consumer(), p)
}

func (d *driver[TTx]) parkLeased() {
	l, ok := d.lease0()
	if !ok {
		return
	}
	p := parking(l.Message.ID, string(l.Message.Body))
	p.Row, p.OrderKey = &l.Row, d.m.keyOf(l.Seq)
	c := l.Consumer
	if c == "" {
		c = d.consumer()
	}
	d.park(c, p)
}

func (d *driver[TTx]) park(c string, p onceward.Parking) {
	p.Dead, p.Attempts = d.rnd.IntN(3) == 0, d.rnd.IntN(5)
	p.After = pick(d.rnd, 0, 0, time.Hour)
	body := string(p.Message.Body)
	p.Counted = body == "x" && d.m.counts[c+p.ID] > 0
	found, err := d.s.Park(d.ctx, c, []onceward.Parking{p})
	d.must(err)
	d.logf("park %s id %s body %s key %q row %v dead %v: %v", c, p.ID, body, p.OrderKey, p.Row, p.Dead, names(found))
	if want := d.m.park(c, p); !slices.Contains(want, found[0]) {
		d.Fatalf("Park found %v, want one of %v", names(found), names(want))
	}
	d.m.parked(c, p, found[0])
}

func (d *driver[TTx]) putSome() {
	for range 1 + d.rnd.IntN(3) {
		m := msg(d.id(), d.body())
		m.Key = d.key()
		d.put("q", m)
		d.logf("put id %s body %s key %q", m.ID, m.Body, m.Key)
		d.m.put(m)
	}
}

func (d *driver[TTx]) leaseSome() {
	p := onceward.LeaseParams{Queue: "q", Max: 1 + d.rnd.IntN(3), For: long, KeepOrder: d.rnd.IntN(2) == 0}
	if d.rnd.IntN(2) == 0 {
		p.Queue, p.Consumer = onceward.Retries, d.consumer()
	}
	free := d.m.leasable(p)
	ls := d.lease(p)
	d.logf("lease %+v: %q", p, ids(ls))
	if len(ls) != min(p.Max, len(free)) {
		d.Fatalf("leased %d rows of %d, at most %d", len(ls), len(free), p.Max)
	}
	for _, l := range ls {
		if !slices.Contains(free, l.Seq) {
			d.Fatalf("leased row %d, which should be left alone; these are free: %v", l.Seq, free)
		}
		d.m.leased(l)
	}
	d.leases = append(d.leases, ls...)
}

func (d *driver[TTx]) finishOne() {
	l, ok := d.lease0()
	if !ok {
		return
	}
	o := onceward.Outcome{Row: l.Row, Verdict: pick(d.rnd, onceward.Ack, onceward.Requeue, onceward.Requeue, onceward.Reject), After: pick(d.rnd, 0, 0, time.Hour)}
	if l.Queue == "q" && o.Verdict == onceward.Reject {
		o.Verdict = onceward.Requeue // whether a dead row's id can be put again is the store's choice
	}
	err := d.s.Finish(d.ctx, o)
	d.logf("finish %+v: %v", o, err)
	mine := d.m.finish(o)
	if mine && err != nil || !mine && !errors.Is(err, onceward.ErrLeaseLost) {
		d.Fatalf("Finish = %v, the lease is ours: %v", err, mine)
	}
}

func (d *driver[TTx]) operate() {
	f := onceward.Filter{Consumer: d.consumer(), ID: d.id()}
	what := pick(d.rnd, "replay", "discard", "forget")
	var n int
	var err error
	switch what {
	case "replay":
		n, err = d.s.Replay(d.ctx, f)
	case "discard":
		n, err = d.s.Discard(d.ctx, f)
	case "forget":
		n, err = d.s.Forget(d.ctx, f.Consumer, f.ID)
	}
	d.must(err)
	d.logf("%s %s %s: %d", what, f.Consumer, f.ID, n)
	if want := d.m.operate(what, f); n != want {
		d.Fatalf("%s = %d, want %d", what, n, want)
	}
}

func (d *driver[TTx]) attempt() {
	c, r := d.consumer(), rec(d.id(), "x")
	if l, ok := d.lease0(); ok && d.rnd.IntN(2) == 0 {
		r = withRow(l)
	}
	var n int
	var err error
	if r.Row != nil {
		n, err = d.s.Start(d.ctx, *r.Row)
	} else {
		n, err = d.s.Attempt(d.ctx, c, r)
	}
	d.logf("attempt %s id %s row %v: %d, %v", c, r.ID, r.Row, n, err)
	want, mine := d.m.attempt(c, r)
	if !mine && !errors.Is(err, onceward.ErrLeaseLost) || mine && (err != nil || n != want) {
		d.Fatalf("Attempt = %d, %v, want %d, the lease is ours: %v", n, err, want, mine)
	}
}

// compare compares all rows and records. A row is known by its sequence once it was seen.
func (d *driver[TTx]) compare() {
	ls := d.list(onceward.Filter{Limit: 10000})
	if len(ls) != len(d.m.rows) {
		d.Fatalf("%d rows, want %d: %q", len(ls), len(d.m.rows), ids(ls))
	}
	for i, l := range ls {
		r := d.m.rows[i]
		if r.seq == 0 {
			r.seq = l.Seq
		}
		got := row{l.Seq, r.fence, l.Queue, l.Consumer, l.Message.ID, string(l.Message.Body), r.key, l.State, l.Attempts, l.State == onceward.Waiting && l.Due > 0}
		if got != *r {
			d.Fatalf("row %+v, want %+v", got, *r)
		}
	}
	for _, c := range []string{"c", "d"} {
		rs, want := recs("0", "1", "2", "3", "4", "5", "6", "7"), make([]bool, 8)
		for i := range rs {
			_, want[i] = d.m.finished[c+rs[i].ID]
		}
		d.wantRecorded(c, rs, want...)
	}
}
