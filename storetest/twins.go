package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

func twinCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "waits for a twin that commits", run: (*env[TTx]).twinCommits, concurrent: true},
		{name: "waits for a twin that rolls back", run: (*env[TTx]).twinRollsBack, concurrent: true},
		{name: "does not wait for ever", run: (*env[TTx]).twinStays, concurrent: true},
		{name: "other ids and consumers do not wait", run: (*env[TTx]).twinApart, concurrent: true},
		{name: "is not parked", run: (*env[TTx]).twinPark, concurrent: true},
		{name: "waiting ends with the context", run: (*env[TTx]).twinContext, concurrent: true},
		{name: "its row is not leased by anybody else", run: (*env[TTx]).twinRow, concurrent: true},
		{name: "fifty at once have one effect", run: (*env[TTx]).twinFifty},
		{name: "claimed or parked, never both", run: (*env[TTx]).twinClaimOrPark},
		{name: "put and appended by many at once", run: (*env[TTx]).twinPut},
		{name: "batches in different order", run: (*env[TTx]).twinBatches},
	}
}

// open begins a transaction that claims r for c, and returns how to end it. The transaction has
// ended when end returns.
func (e *env[TTx]) open(consumer string, r onceward.Record) (end func(err error)) {
	e.Helper()
	claimed, end0, done := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		done <- e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			found, err := e.s.Claim(ctx, tx, consumer, []onceward.Record{r})
			if err == nil && found[0] != onceward.Fresh {
				err = fmt.Errorf("found %v", names(found))
			}
			if err == nil {
				err = e.in.Effect(ctx, tx, "open")
			}
			claimed <- err
			if err != nil {
				return err
			}
			return <-end0
		})
	}()
	if err := within(e.T, "the first claim", claimed); err != nil {
		e.Fatalf("the first claim: %v", err)
	}
	var once sync.Once
	end = func(err error) {
		once.Do(func() {
			end0 <- err
			if got := within(e.T, "the first transaction's end", done); !errors.Is(got, err) {
				e.Errorf("the first transaction ended with %v, want %v", got, err)
			}
		})
	}
	e.Cleanup(func() { end(errors.New("the test is over")) })
	return end
}

type claimed struct {
	found []onceward.Found
	err   error
}

// tryClaim claims in another goroutine, in a transaction of its own.
func (e *env[TTx]) tryClaim(ctx context.Context, consumer string, rs ...onceward.Record) <-chan claimed {
	ch := make(chan claimed, 1)
	go func() {
		var c claimed
		c.err = e.s.InTx(ctx, func(ctx context.Context, tx TTx) (err error) {
			c.found, err = e.s.Claim(ctx, tx, consumer, rs)
			return err
		})
		ch <- c
	}()
	return ch
}

func putAside(err error) bool {
	return errors.Is(err, onceward.ErrBusy) || errors.Is(err, onceward.ErrConflict)
}

func (e *env[TTx]) twinCommits() { e.twin(nil, onceward.Duplicate) }

func (e *env[TTx]) twinRollsBack() { e.twin(errors.New("roll back"), onceward.Fresh) }

func (e *env[TTx]) twin(how error, want onceward.Found) {
	end := e.open("c", rec("a", "x"))
	second := e.tryClaim(e.ctx, "c", rec("a", "x"))
	if c, early := lapse(second, min(e.h.MaxWait/4, 100*time.Millisecond)); early {
		e.Fatalf("the claim did not wait for its twin: %v, %v", names(c.found), c.err)
	}
	end(how)
	c := within(e.T, "the second claim", second)
	if putAside(c.err) { // the machine was too slow, or the isolation level does not allow more
		e.wantClaim("c", rec("a", "x"), want)
		return
	}
	e.must(c.err)
	if c.found[0] != want {
		e.Fatalf("the second claim found %v, want %v", names(c.found), names([]onceward.Found{want}))
	}
}

func (e *env[TTx]) twinStays() {
	end := e.open("c", rec("a", "x"))
	c := within(e.T, "a claim to give up", e.tryClaim(e.ctx, "c", rec("0", "x"), rec("a", "x"), rec("z", "x")))
	if !putAside(c.err) {
		e.Fatalf("a claim that waited too long: %v, %v, want ErrBusy or ErrConflict", names(c.found), c.err)
	}
	e.wantRecorded("c", recs("0", "z"), false, false)
	end(nil)
	e.wantClaim("c", rec("a", "x"), onceward.Duplicate)
	e.wantEffects(map[string]int{"open": 1})
}

func (e *env[TTx]) twinApart() {
	e.open("c", rec("a", "x"))
	for _, other := range []struct{ consumer, id string }{{"c", "b"}, {"d", "a"}, {"c", "A"}, {"c", "a "}, {"c", "aa"}, {"c", "\x02 a synthetic id"}} {
		c := within(e.T, "an unrelated claim", e.tryClaim(e.ctx, other.consumer, onceward.Record{ID: other.id, Fingerprint: 1}))
		e.must(c.err)
		if c.found[0] != onceward.Fresh {
			e.Errorf("%q of %q: %v", other.id, other.consumer, names(c.found))
		}
	}
}

func (e *env[TTx]) twinPark() {
	end := e.open("c", rec("a", "x"))
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q"})
	p := parking("a", "x")
	p.Row = &l.Row
	found, err := e.s.Park(e.ctx, "c", []onceward.Parking{parking("b", "x"), p, parking("d", "x")})
	e.must(err)
	want := []onceward.Found{onceward.Fresh, onceward.Busy, onceward.Fresh}
	for i := range want {
		if found[i] != want[i] {
			e.Fatalf("Park = %v, want %v", names(found), names(want))
		}
	}
	e.wantRows(onceward.Filter{Queue: onceward.Retries, ID: "a"}, 0)
	e.wantRows(onceward.Filter{Queue: onceward.Retries}, 2)
	e.wantRows(onceward.Filter{Queue: "q"}, 1)
	end(nil)
	e.wantPark("c", p, onceward.Duplicate)
	e.wantRows(onceward.Filter{Queue: "q"}, 0)
}

func (e *env[TTx]) twinContext() {
	e.open("c", rec("a", "x"))
	ctx, cancel := context.WithCancel(e.ctx)
	second := e.tryClaim(ctx, "c", rec("a", "x"))
	if c, early := lapse(second, min(e.h.MaxWait/4, 50*time.Millisecond)); early {
		e.Fatalf("the claim did not wait: %v, %v", names(c.found), c.err)
	}
	cancel()
	if c := within(e.T, "the claim to end", second); c.err == nil {
		e.Fatal("a claim whose context ended while it waited succeeded")
	}
}

func (e *env[TTx]) twinRow() {
	e.put("q", msg("a", "x"))
	l := e.leaseSoon(onceward.LeaseParams{Queue: "q", For: short})
	end := e.open("c", withRow(l))
	expired := time.NewTimer(2 * short)
	<-expired.C
	ctx, cancel := context.WithTimeout(e.ctx, 2*e.h.MaxWait+short)
	defer cancel()
	ls, err := e.s.Lease(ctx, onceward.LeaseParams{Queue: "q", Max: 1, For: long})
	if err == nil && len(ls) > 0 {
		e.Fatalf("leased %q, which an open transaction has claimed", ids(ls))
	}
	end(nil)
	e.wantLease(onceward.LeaseParams{Queue: "q"})
	e.wantRows(onceward.Filter{Queue: "q"}, 0)
}

// fight lets n goroutines claim at once, each with an effect per fresh id, and again after a conflict.
func (e *env[TTx]) fight(n int, rs func(i int) []onceward.Record) {
	e.together(n, func(i int) error { return e.claimAndCount(rs(i)) })
}

func (e *env[TTx]) claimAndCount(rs []onceward.Record) error {
	return e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		found, err := e.s.Claim(ctx, tx, "c", rs)
		for i := range found {
			if err == nil && found[i] == onceward.Fresh {
				err = e.in.Effect(ctx, tx, rs[i].ID)
			}
		}
		return err
	})
}

func (e *env[TTx]) twinFifty() {
	e.fight(50, func(int) []onceward.Record { return recs("a") })
	e.wantEffects(map[string]int{"a": 1})
	e.wantClaim("c", recs("a")[0], onceward.Duplicate)
}

func (e *env[TTx]) twinBatches() {
	want := map[string]int{}
	for i := range 30 {
		want[fmt.Sprint(i)] = 1
	}
	e.fight(6, func(n int) []onceward.Record {
		var rs []onceward.Record
		for i := range 30 {
			j := (i + n*5) % 30
			if n%2 == 1 {
				j = 29 - j
			}
			rs = append(rs, recs(fmt.Sprint(j))...)
		}
		return rs
	})
	e.wantEffects(want)
}

// together runs f in n goroutines at once, again as long as it is put aside.
func (e *env[TTx]) together(n int, f func(i int) error) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			deadline := time.Now().Add(patience + 2*e.h.MaxWait)
			for {
				err := f(i)
				if err == nil {
					return
				}
				if !putAside(err) || time.Now().After(deadline) {
					e.Errorf("number %d: %v", i, err)
					return
				}
			}
		})
	}
	close(start)
	wg.Wait()
}

func (e *env[TTx]) twinClaimOrPark() {
	for round := range 10 {
		id := fmt.Sprint(round)
		e.together(8, func(i int) error {
			if i%2 == 0 {
				return e.claimAndCount(recs(id))
			}
			p := parking(id, "body of "+id)
			p.Dead = i%4 == 1
			_, err := e.s.Park(e.ctx, "c", []onceward.Parking{p})
			return err
		})
		rows, effects := len(e.list(onceward.Filter{ID: id})), e.in.Effects(e.T)[id]
		recorded, err := e.s.Recorded(e.ctx, "c", recs(id))
		e.must(err)
		if rows+effects != 1 || recorded[0] != (effects == 1) {
			e.Fatalf("%s has %d effects, %d rows, and is recorded: %v", id, effects, rows, recorded[0])
		}
	}
}

func (e *env[TTx]) twinPut() {
	e.together(10, func(i int) error {
		if i%2 == 0 {
			return e.s.Put(e.ctx, onceward.Entry{Queue: "q", Message: *msg("a", "x")}, onceward.Entry{Queue: "q", Message: *msg("b", "x")})
		}
		return e.append(nil, "q", msg("b", "x"), msg("a", "x"))
	})
	e.wantRows(onceward.Filter{Queue: "q"}, 2)
}
