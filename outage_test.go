package onceward_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// down makes every operation fail while it is set.
type down struct{ atomic.Bool }

func (d *down) look(string) error {
	if d.Load() {
		return onceward.ErrUnavailable
	}
	return nil
}

func TestStoreOutage(t *testing.T) {
	for _, long := range []time.Duration{time.Second, 10 * time.Second, 90 * time.Second} {
		for _, lanes := range []int{1, 4} {
			t.Run(fmt.Sprint(long, lanes), func(t *testing.T) {
				bubble(t, func(t *testing.T) { storeOutage(t, long, lanes) })
			})
		}
	}
}

func storeOutage(t *testing.T, long time.Duration, lanes int) {
	s := newFaulty()
	var away down
	s.set(away.look, nil)
	var worst atomic.Int32
	h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		worst.Store(max(worst.Load(), int32(d.Attempt)))
		if d.ID == "m77" {
			away.Store(true) // the outage begins in the middle
		}
		return effect(ctx, tx, d)
	}
	ms := msgs("m", 300)
	src := memory.NewSource(ms...)
	var mu sync.Mutex
	var states []onceward.State
	c := consumer(t, "c", src, s, h, onceward.Config{
		Lanes: lanes, Attempts: 10,
		Hooks: &onceward.Hooks{State: func(_ string, st onceward.State, _ error) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, st)
		}},
	})
	l := start(t, c)
	pass(long)
	if st := c.Stats().State; st != onceward.Paused {
		t.Errorf("%v in the outage, want paused", st)
	}
	given := src.Pending()
	if long > time.Minute {
		// What is held has gone back: another consumer could have it.
		other, err := src.Subscribe(t.Context(), onceward.SubscribeParams{})
		if err != nil {
			t.Fatal(err)
		}
		ins, err := other.Receive(t.Context(), 1000)
		if err != nil || len(ins) != given {
			t.Errorf("another consumer gets %d of %d, %v", len(ins), given, err)
		}
		_ = other.Close(t.Context())
	}
	s.set(nil, nil)
	until(t, 20*time.Second, "all to be done", func() bool { return src.Pending() == 0 && c.Stats().Waiting == 0 })
	if st := c.Stats().State; st != onceward.Running {
		t.Errorf("%v after the outage, want running", st)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	checkEffects(t, s.Store, idsOf(ms)...)
	checkParked(t, s)
	if n := c.Stats(); n.Dead != 0 || n.Failed != 0 || n.Processed != 300 {
		t.Errorf("%+v", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := len(states); states[0] != onceward.Running || states[n-2] != onceward.Draining || states[n-1] != onceward.Stopped {
		t.Errorf("states %v", states)
	}
}

// A message at whose start, alone, the store goes away three times in a row is the likely cause.
func TestMessageThatTakesTheStoreDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		var away down
		s.set(away.look, nil)
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if d.ID == "m7" {
				away.Store(true)
				time.AfterFunc(3*time.Second, func() { away.Store(false) })
				return fmt.Errorf("connection lost: %w", onceward.ErrUnavailable)
			}
			return effect(ctx, tx, d)
		}
		ms := msgs("m", 20)
		c := consumer(t, "c", memory.NewSource(ms...), s, h, onceward.Config{Attempts: 2})
		l := start(t, c)
		until(t, 5*time.Minute, "it to be dead", func() bool { return c.Stats().Dead == 1 })
		until(t, time.Minute, "the others to be done", func() bool { return c.Stats().Processed == 19 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if ls := checkParked(t, s, "m7 dead"); ls[0].Attempts != 2 {
			t.Errorf("%d attempts", ls[0].Attempts)
		}
		checkEffects(t, s.Store, append(idsOf(ms[:7]), idsOf(ms[8:])...)...)
	})
}

// The store is away when a consumer starts, and when retries are due.
func TestOutageAtStartAndOfRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		var away down
		away.Store(true)
		s.set(away.look, nil)
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if d.Attempt == 1 {
				return errBad
			}
			return effect(ctx, tx, d)
		}
		ms := msgs("m", 10)
		src := memory.NewSource(ms...)
		c := consumer(t, "c", src, s, h, onceward.Config{Attempts: 3, Backoff: every(10 * time.Second)})
		l := start(t, c)
		pass(5 * time.Minute)
		if n := c.Stats(); n.State != onceward.Paused || n.Received != 0 {
			t.Errorf("with the store away from the start: %+v", n)
		}
		away.Store(false)
		until(t, 8*time.Second, "all to wait", func() bool { return c.Stats().Waiting == 10 })
		away.Store(true)
		pass(5 * time.Minute)
		away.Store(false)
		until(t, 30*time.Second, "all to be done", func() bool { return c.Stats().Processed == 10 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s.Store, idsOf(ms)...)
		checkStats(t, c, onceward.Stats{Received: 10, Processed: 10, Failed: 10, Retried: 10})
	})
}

func TestWithoutTables(t *testing.T) {
	s := newFaulty()
	s.set(only("Ready", -1, onceward.ErrNoSchema), nil)
	c := consumer(t, "c", memory.NewSource(msg("a")), s, effect, onceward.Config{})
	if err := c.Check(t.Context()); err == nil {
		t.Error("Check finds nothing wrong")
	}
	checkErrorIs(t, start(t, c).wait(), onceward.ErrNoSchema)
	checkEffects(t, s.Store)
}
