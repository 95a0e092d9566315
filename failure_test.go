package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func TestSecondAttemptSucceeds(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"error":   func(context.Context) error { return errBad },
		"panic":   func(context.Context) error { panic("bad") },
		"timeout": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"goexit":  func(context.Context) error { runtime.Goexit(); return nil },
	} {
		for _, n := range []int{1, 20} {
			t.Run(fmt.Sprint(name, " among ", n), func(t *testing.T) {
				bubble(t, func(t *testing.T) { secondAttempt(t, n, fail) })
			})
		}
	}
}

func secondAttempt(t *testing.T, n int, fail func(context.Context) error) {
	s := memory.NewStore()
	var attempts []int
	h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		tx.Add(effectOf(d.ID), 1)
		if d.ID != "m0" {
			return nil
		}
		if attempts = append(attempts, d.Attempt); d.Attempt == 1 {
			return fail(ctx)
		}
		return nil
	}
	ms := msgs("m", n)
	src := memory.NewSource(ms...)
	c := consumer(t, "c", src, s, h, onceward.Config{})
	l := start(t, c)
	until(t, 5*time.Minute, "all to be done", func() bool { return c.Stats().Processed == int64(n) })
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	checkEffects(t, s, idsOf(ms)...)
	checkParked(t, s)
	checkStats(t, c, onceward.Stats{Received: int64(n), Processed: int64(n), Failed: 1, Retried: 1})
	if fmt.Sprint(attempts) != "[1 2]" || src.Pending() != 0 {
		t.Errorf("attempts %v, %d pending", attempts, src.Pending())
	}
}

func TestAlwaysFailing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		const first, limit = time.Second, 5
		var starts []time.Time
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if d.ID != "bad" {
				return effect(ctx, tx, d)
			}
			starts = append(starts, time.Now())
			if d.Attempt != len(starts) {
				t.Errorf("start %d is called attempt %d", len(starts), d.Attempt)
			}
			tx.Add(effectOf(d.ID), 1)
			return fmt.Errorf("the %d. time", d.Attempt)
		}
		bad := &onceward.Message{
			ID: "bad", Topic: "topic", Key: "k", Headers: onceward.Headers{"H": {"a", "\x00"}},
			Body: []byte("\xff\x00bad"), Time: time.Unix(1, 0).UTC(),
		}
		ms := msgs("m", 1000)
		src := memory.NewSource(append(append(append([]*onceward.Message{}, ms[:500]...), bad), ms[500:]...)...)
		var dead []string
		c := consumer(t, "c", src, s, h, onceward.Config{
			Attempts: limit, Backoff: onceward.ExponentialBackoff(first, time.Minute),
			Hooks: &onceward.Hooks{Dead: func(_ string, m *onceward.Message, reason error) { dead = append(dead, m.ID+": "+reason.Error()) }},
		})
		began := time.Now()
		l := start(t, c)
		until(t, time.Second, "the good ones to be done", func() bool { return c.Stats().Processed == 1000 })
		until(t, 2*time.Minute, "the bad one to be dead", func() bool { return c.Stats().Dead == 1 })
		pass(time.Hour)
		src.Send(bad) // again
		until(t, time.Minute, "the repeat to be dropped", func() bool { return c.Stats().Duplicates == 1 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if len(starts) != limit || starts[0].Sub(began) > time.Second {
			t.Fatalf("started %d times, want %d", len(starts), limit)
		}
		for i := 1; i < limit; i++ {
			want := first << (i - 1)
			if took := starts[i].Sub(starts[i-1]); took < want*8/10 || took > want*12/10+100*time.Millisecond {
				t.Errorf("attempt %d after %v, want about %v", i+1, took, want)
			}
		}
		checkEffects(t, s, idsOf(ms)...)
		checkStats(t, c, onceward.Stats{Received: 1002, Processed: 1000, Dead: 1, Duplicates: 1, Failed: limit, Retried: limit - 1})
		ls := checkParked(t, s, "bad dead")
		if !strings.Contains(ls[0].Reason, "the 5. time") || ls[0].Attempts != limit || !strings.Contains(ls[0].Origin, "message 501") {
			t.Errorf("the dead letter says %q, %d attempts, from %q", ls[0].Reason, ls[0].Attempts, ls[0].Origin)
		}
		if got := ls[0].Message; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *bad) {
			t.Errorf("the dead letter is %+v, want %+v", got, *bad)
		}
		if len(dead) != 1 || !strings.Contains(dead[0], "bad: ") {
			t.Errorf("Hooks.Dead saw %q", dead)
		}
	})
}

func TestRetryAfterAndPermanent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		var first, second time.Time
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			switch {
			case d.ID == "perm":
				return fmt.Errorf("wrapped: %w", onceward.Permanent(errBad))
			case d.Attempt == 1:
				first = time.Now()
				return fmt.Errorf("wrapped: %w", onceward.RetryAfter(errBad, 7*time.Second))
			}
			second = time.Now()
			return effect(ctx, tx, d)
		}
		c := consumer(t, "c", memory.NewSource(msg("later"), msg("perm")), s, h, onceward.Config{Backoff: every(time.Hour)})
		l := start(t, c)
		until(t, time.Minute, "both to be done with", func() bool { return c.Stats().Processed+c.Stats().Dead == 2 })
		_ = l.stop()
		if d := second.Sub(first); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("tried again after %v, want 7s", d)
		}
		checkEffects(t, s, "later")
		if ls := checkParked(t, s, "perm dead"); ls[0].Attempts != 1 {
			t.Errorf("the permanent failure took %d attempts", ls[0].Attempts)
		}
	})
}

// A handler that never returns is left behind; what it does later has no effect.
func TestHandlerNeverReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		release := make(chan struct{})
		var left sync.WaitGroup
		var starts atomic.Int32
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if d.ID != "stuck" {
				return effect(ctx, tx, d)
			}
			starts.Add(1)
			left.Add(1)
			defer left.Done()
			<-release
			d.Emit("out", "late", msg("x"))
			return effect(ctx, tx, d)
		}
		ms := msgs("m", 50)
		src := memory.NewSource(append([]*onceward.Message{ms[0], msg("stuck")}, ms[1:]...)...)
		c := consumer(t, "c", src, s, h, onceward.Config{Attempts: 3, Timeout: 10 * time.Second, Backoff: every(time.Second)})
		l := start(t, c)
		until(t, 14*time.Second, "the others to be done", func() bool { return c.Stats().Processed == 50 })
		until(t, time.Minute, "the stuck one to be dead", func() bool { return c.Stats().Dead == 1 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		close(release)
		left.Wait()
		pass(time.Minute)
		checkEffects(t, s, idsOf(ms)...)
		checkParked(t, s, "stuck dead")
		checkStats(t, c, onceward.Stats{Received: 51, Processed: 50, Dead: 1, Failed: 3, Retried: 2})
		if n := starts.Load(); n != 3 || len(rows(t, s, "out")) != 0 {
			t.Errorf("%d starts, emitted: %v", n, rows(t, s, "out"))
		}
	})
}

// A batch handler that gets stuck does not get the first of the batch blamed.
func TestBatchHandlerNeverReturns(t *testing.T) {
	for name, stick := range map[string]func(ctx context.Context){
		"never":  func(ctx context.Context) { select {} },
		"goexit": func(context.Context) { runtime.Goexit() },
		"panic":  func(context.Context) { panic("bad") },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "never" {
				stick = func(ctx context.Context) { <-ctx.Done(); <-time.After(time.Hour) }
			}
			bubble(t, func(t *testing.T) {
				s := memory.NewStore()
				h := func(ctx context.Context, tx *memory.Tx, ds []*onceward.Delivery) error {
					for _, d := range ds {
						if d.ID == "m17" {
							stick(ctx)
						}
						_ = effect(ctx, tx, d)
					}
					return nil
				}
				c, err := onceward.EffectivelyOnceBatch("c", memory.Messages(msgs("m", 30)...), s, h, &onceward.Config{
					Attempts: 1, Timeout: time.Second, Logger: quiet,
				})
				if err != nil {
					t.Fatal(err)
				}
				run(t, c)
				checkParked(t, s, "m17 dead")
				if n := c.Stats(); n.Processed != 29 || n.Dead != 1 {
					t.Errorf("%+v", n)
				}
				pass(2 * time.Hour) // lets the abandoned goroutines end
			})
		})
	}
}

func TestHandlerEndsItsTransaction(t *testing.T) {
	for name, end := range map[string]func(*memory.Tx) error{"commit": (*memory.Tx).Commit, "rollback": (*memory.Tx).Rollback} {
		for _, swallow := range []bool{true, false} {
			t.Run(fmt.Sprint(name, swallow), func(t *testing.T) { endsItsTransaction(t, end, swallow) })
		}
	}
}

func endsItsTransaction(t *testing.T, end func(*memory.Tx) error, swallow bool) {
	t.Helper()
	s := memory.NewStore()
	h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		_ = effect(ctx, tx, d)
		if d.ID != "m3" {
			return nil
		}
		if err := end(tx); err == nil || !swallow {
			return err
		}
		tx.Add(effectOf("afterwards"), 1)
		return nil
	}
	c := consumer(t, "c", memory.Messages(msgs("m", 20)...), s, h, onceward.Config{Attempts: 2, Backoff: every(0)})
	run(t, c)
	checkEffects(t, s, slices.DeleteFunc(idsOf(msgs("m", 20)), func(id string) bool { return id == "m3" })...)
	ls := checkParked(t, s, "m3 dead")
	if n := c.Stats(); n.Processed != 19 || n.Dead != 1 || !strings.Contains(ls[0].Reason, onceward.ErrTxEnded.Error()) {
		t.Errorf("%+v, reason %q", n, ls[0].Reason)
	}
}

// A store that can't be reached when a message is to be put aside: the original is not settled before
// the row is written, and there is one row.
func TestParkingFails(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after func(string) error
	}{
		{"undone", only("Park", 3, onceward.ErrUnavailable), nil},
		{"done, and not known", nil, only("Park", 3, onceward.ErrInDoubt)},
		{"refused", only("Park", 3, errBad), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newFaulty()
				s.set(tt.before, tt.after)
				fails := func(context.Context, *memory.Tx, *onceward.Delivery) error { return errBad }
				src := memory.NewSource(msg("a"))
				c := consumer(t, "c", src, s, fails, onceward.Config{Backoff: every(time.Hour)})
				l := start(t, c)
				pass(50 * time.Millisecond)
				if tt.before != nil && (src.Pending() != 1 || len(rows(t, s, onceward.Retries)) != 0) {
					t.Error("settled before it was put aside")
				}
				until(t, time.Minute, "it to be settled", func() bool { return src.Pending() == 0 })
				src.Send(msg("a"))
				until(t, time.Minute, "the repeat to be dropped", func() bool { return src.Pending() == 0 })
				if err := l.stop(); err != nil {
					t.Error(err)
				}
				if ls := checkParked(t, s, "a waiting"); ls[0].Attempts != 1 {
					t.Errorf("%d attempts", ls[0].Attempts)
				}
			})
		})
	}
}

// The process dies after a failed message was put aside and before it was settled.
func TestDeathBetweenParkAndSettle(t *testing.T) {
	for _, final := range []bool{false, true} {
		t.Run(fmt.Sprint("dead ", final), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memory.NewStore()
				runs := 0
				h := func(context.Context, *memory.Tx, *onceward.Delivery) error {
					runs++
					if final {
						return onceward.Permanent(errBad)
					}
					return errBad
				}
				inner := memory.NewSource(msg("a"))
				src := &source{Source: inner, settle: func([]onceward.Settlement) error { return errors.New("connection lost") }}
				cfg := onceward.Config{Backoff: every(time.Hour)}
				c := consumer(t, "c", src, s, h, cfg)
				l := start(t, c)
				pass(time.Second)
				_ = l.stop()
				src.settle = nil
				c = consumer(t, "c", src, s, h, cfg)
				l = start(t, c)
				until(t, time.Minute, "the repeat to be settled", func() bool { return inner.Pending() == 0 })
				_ = l.stop()
				checkParked(t, s, map[bool]string{true: "a dead", false: "a waiting"}[final])
				if runs != 1 || c.Stats().Duplicates != 1 {
					t.Errorf("%d runs, %+v", runs, c.Stats())
				}
			})
		})
	}
}

func TestReplayAndDiscard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		s := memory.NewStore()
		broken := true
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if broken {
				return onceward.Permanent(errBad)
			}
			return effect(ctx, tx, d)
		}
		src := memory.NewSource(msg("replayed"), msg("discarded"), msg("finished"))
		c := consumer(t, "c", src, s, h, onceward.Config{})
		l := start(t, c)
		until(t, time.Minute, "all to be dead", func() bool { return c.Stats().Dead == 3 })
		broken = false
		if n, err := s.Discard(ctx, onceward.Filter{ID: "discarded"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		// Somebody finishes one in another way, before it is replayed.
		ran, err := onceward.Once(ctx, s, "c", "finished", func(_ context.Context, tx *memory.Tx) error {
			tx.Add(effectOf("finished"), 1)
			return nil
		})
		t.Log("finished in another way:", ran, err)
		if n, err := s.Replay(ctx, onceward.Filter{Consumer: "c"}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		until(t, time.Minute, "the replayed ones to be done", func() bool { return len(rows(t, s, onceward.Retries)) == 0 })
		src.Send(msg("discarded"), msg("replayed"))
		until(t, time.Minute, "the repeats to be settled", func() bool { return src.Pending() == 0 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s, "replayed", "finished")
		if n := c.Stats(); n.Dead != 3 || n.Waiting != 0 {
			t.Errorf("%+v", n)
		}
	})
}
