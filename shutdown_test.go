package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// Consumers are replaced one after the other while messages flow; their handlers return the context's
// error when it ends.
func TestRollingRestarts(t *testing.T) {
	for _, grace := range []time.Duration{10 * time.Second, 50 * time.Millisecond} {
		t.Run(fmt.Sprint("grace ", grace), func(t *testing.T) {
			bubble(t, func(t *testing.T) { rollingRestarts(t, grace) })
		})
	}
}

func rollingRestarts(t *testing.T, grace time.Duration) {
	s := memory.NewStore()
	h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		select {
		case <-time.After(120 * time.Millisecond):
			return effect(ctx, tx, d)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	src := memory.NewSource()
	cfg := onceward.Config{Attempts: 5, Lanes: 2, MaxBatch: 4, Grace: grace}
	var lives []*life
	for range 2 {
		lives = append(lives, start(t, consumer(t, "c", src, s, h, cfg)))
	}
	ms := msgs("m", 300)
	for i := range 30 {
		src.Send(ms[10*i : 10*i+10]...)
		pass(330 * time.Millisecond)
		if err := lives[0].stop(); err != nil && grace > time.Second {
			t.Error(err)
		}
		lives = append(lives[1:], start(t, consumer(t, "c", src, s, h, cfg)))
	}
	until(t, 5*time.Minute, "all to be done", func() bool { return src.Pending() == 0 })
	for _, l := range lives {
		_ = l.stop()
	}
	checkEffects(t, s, idsOf(ms)...)
	checkParked(t, s)
}

func TestShutdownGivesBackAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		started := make(chan struct{}, 100)
		seen := make(chan time.Time, 1)
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			started <- struct{}{}
			<-time.After(9 * time.Second)
			select {
			case <-ctx.Done():
				seen <- time.Now()
			default:
			}
			return effect(ctx, tx, d)
		}
		inner := memory.NewSource(msgs("m", 50)...)
		src := &source{Source: inner}
		c := consumer(t, "c", src, s, h, onceward.Config{MaxBatch: 1, Grace: 10 * time.Second, Timeout: time.Minute})
		l := start(t, c)
		<-started
		pass(time.Second)
		began := time.Now()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 8100*time.Millisecond {
			t.Errorf("took %v to stop", took)
		}
		if len(seen) > 0 || len(started) > 0 {
			t.Errorf("the handler saw its context end %d times; %d more handlers were started", len(seen), len(started))
		}
		checkEffects(t, s, "m0")
		n := c.Stats()
		if n.Processed != 1 || n.GivenBack != n.Received-1 || inner.Pending() != 49 {
			t.Errorf("%+v, %d pending", n, inner.Pending())
		}
		src.mu.Lock()
		defer src.mu.Unlock()
		for _, st := range src.settled {
			if st.ID != "m0" && (st.Verdict != onceward.Requeue || st.Attempts != 0 || st.After != 0) {
				t.Errorf("%s: verdict %v, attempts %d, after %v", st.ID, st.Verdict, st.Attempts, st.After)
			}
		}
	})
}

func TestGraceOver(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context) error{
		"and the handler heeds its context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"and the handler does not":          func(ctx context.Context) error { <-time.After(3 * time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memory.NewStore()
				started := make(chan struct{}, 1)
				h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
					_ = effect(ctx, tx, d)
					started <- struct{}{}
					return wait(ctx)
				}
				src := memory.NewSource(msg("a"))
				cfg := onceward.Config{Attempts: 1, Grace: 5 * time.Second, Timeout: 2 * time.Hour}
				c := consumer(t, "c", src, s, h, cfg)
				l := start(t, c)
				<-started
				began := time.Now()
				if err := l.stop(); err == nil || !strings.Contains(err.Error(), "grace") {
					t.Errorf("Run returned %v", err)
				}
				if took := time.Since(began); took < 5*time.Second || took > 11*time.Second {
					t.Errorf("took %v to stop", took)
				}
				checkEffects(t, s)
				checkParked(t, s)
				checkStats(t, c, onceward.Stats{Received: 1, GivenBack: 1, Failed: 1})
				pass(4 * time.Hour)
				c = consumer(t, "c", src, s, effect, onceward.Config{Attempts: 3})
				l = start(t, c)
				until(t, time.Minute, "it to be done", func() bool { return c.Stats().Processed == 1 })
				_ = l.stop()
				checkEffects(t, s, "a")
			})
		})
	}
}

// The context of the last settlement is alive although the consumer's has ended.
func TestSettlesWhileStopping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, build := range map[string]func(src onceward.Source, h onceward.Handler) (*onceward.Consumer, error){
			"at most once": func(src onceward.Source, h onceward.Handler) (*onceward.Consumer, error) {
				return onceward.AtMostOnce("c", src, h, &onceward.Config{Logger: quiet})
			},
			"at least once": func(src onceward.Source, h onceward.Handler) (*onceward.Consumer, error) {
				return onceward.AtLeastOnce("c", src, h, &onceward.Config{Logger: quiet})
			},
			"effectively once": func(src onceward.Source, h onceward.Handler) (*onceward.Consumer, error) {
				return onceward.EffectivelyOnce("c", src, memory.NewStore(), func(ctx context.Context, _ *memory.Tx, d *onceward.Delivery) error {
					return h(ctx, d)
				}, &onceward.Config{Logger: quiet})
			},
		} {
			inner := memory.NewSource()
			src := &source{Source: inner}
			var l *life
			h := func(context.Context, *onceward.Delivery) error { l.end(); <-time.After(time.Second); return nil }
			c, err := build(src, h)
			if err != nil {
				t.Fatal(err)
			}
			l = start(t, c)
			inner.Send(msgs("m", 3)...)
			if err := l.wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := c.Stats(); n.Processed == 0 || int(n.Processed) != 3-inner.Pending() {
				t.Errorf("%s: %+v, %d pending", name, n, inner.Pending())
			}
		}
	})
}

// A consumer that is told to stop while the store is away stops soon.
func TestStopInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		var away down
		s.set(away.look, nil)
		src := memory.NewSource(msgs("m", 300)...)
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			away.Store(true)
			return effect(ctx, tx, d)
		}
		c := consumer(t, "c", src, s, h, onceward.Config{MaxBatch: 10})
		l := start(t, c)
		pass(20 * time.Second)
		began := time.Now()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v to stop", took)
		}
	})
}

func TestRunTwice(t *testing.T) {
	c := consumer(t, "c", memory.Messages(), memory.NewStore(), effect, onceward.Config{})
	run(t, c)
	if err := c.Run(t.Context()); err == nil {
		t.Error("a second Run was allowed")
	}
}

type runner func(ctx context.Context) error

func (r runner) Run(ctx context.Context) error { return r(ctx) }

func TestRunJoins(t *testing.T) {
	other := errors.New("other")
	var stopped atomic.Bool
	waits := func(ctx context.Context) error { <-ctx.Done(); stopped.Store(true); return other }
	err := onceward.Run(t.Context(), runner(waits), runner(func(context.Context) error { return errBad }))
	checkErrorIs(t, err, errBad)
	checkErrorIs(t, err, other)
	if !stopped.Load() {
		t.Error("the other was not stopped")
	}
	// One that ends by itself stops nobody.
	src := memory.NewSource(msg("a"))
	s := memory.NewStore()
	done := make(chan struct{})
	h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		<-done
		return effect(ctx, tx, d)
	}
	long := consumer(t, "long", src, s, h, onceward.Config{})
	src.End()
	short := runner(func(context.Context) error { close(done); return nil })
	if err := onceward.Run(t.Context(), short, long); err != nil {
		t.Error(err)
	}
	checkEffects(t, s, "a")
}
