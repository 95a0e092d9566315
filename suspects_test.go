package onceward_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// killer is a store whose process can be killed: from then on nothing reaches it.
type killer struct {
	*faulty
	l atomic.Pointer[life]
}

// kill ends the life of the process that h runs in. It returns what h is to return.
func (k *killer) kill(ctx ctx) error {
	k.set(func(string) error { return errors.New("killed") }, nil)
	for k.l.Load() == nil {
		<-time.After(time.Millisecond)
	}
	k.l.Load().end()
	<-ctx.Done()
	return ctx.Err()
}

// live starts a new process.
func (k *killer) live(t *testing.T, c *onceward.Consumer) *life {
	k.set(nil, nil)
	k.l.Store(nil)
	l := start(t, c)
	k.l.Store(l)
	return l
}

// A message that kills the process ends as a dead letter, and its neighbours do not.
func TestMessageThatKills(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hints  bool
		starts int // the first of a source with hints is not counted: it was no repeat
	}{{"with hints", true, 4}, {"without hints", false, 3}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				k := &killer{faulty: newFaulty()}
				src := memory.NewSource(msgs("m", 10)...)
				src.NoHints = !tt.hints
				var runs starts
				var attempts []int
				h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
					_ = effect(ctx, tx, d)
					runs.add(d.ID)
					if d.ID == "m4" {
						attempts = append(attempts, d.Attempt)
						return k.kill(ctx)
					}
					return nil
				}
				cfg := onceward.Config{Attempts: 3, Grace: time.Millisecond}
				for life := 0; src.Pending() > 0; life++ {
					if life > 6 {
						t.Fatal("it goes on killing")
					}
					c := consumer(t, "c", src, k, h, cfg)
					l := k.live(t, c)
					pass(time.Minute)
					_ = l.stop()
				}
				checkEffects(t, k.Store, without(idsOf(msgs("m", 10)), "m4")...)
				ls := checkParked(t, k.Store, "m4 dead")
				if runs.get("m4") != tt.starts || len(ls) != 1 || ls[0].Attempts != 3 || !strings.Contains(ls[0].Reason, "never came to an end") {
					t.Errorf("%d starts (attempts %v), put aside: %v", runs.get("m4"), attempts, ls)
				}
				if attempts[len(attempts)-1] != 3 {
					t.Errorf("attempts %v", attempts)
				}
			})
		})
	}
}

// So does one that kills the process when it is tried again.
func TestRetryThatKills(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := &killer{faulty: newFaulty()}
		src := memory.NewSource(msg("a"))
		var attempts []int
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			attempts = append(attempts, d.Attempt)
			if d.Attempt == 1 {
				return errBad
			}
			return k.kill(ctx)
		}
		for range 8 {
			l := k.live(t, consumer(t, "c", src, k, h, onceward.Config{Attempts: 3, Grace: time.Millisecond}))
			pass(5 * time.Minute)
			_ = l.stop()
		}
		checkParked(t, k.Store, "a dead")
		if len(attempts) != 3 || attempts[2] != 3 {
			t.Errorf("attempts %v", attempts)
		}
	})
}

// A possible repeat is counted before its handler starts, and runs while no other handler does, of
// any consumer in the process.
func TestSuspectsRunAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		src := memory.NewSource(msgs("m", 10)...)
		ss, err := src.Subscribe(t.Context(), onceward.SubscribeParams{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = ss.Receive(t.Context(), 5)
		_ = ss.Close(t.Context())
		var active, alone atomic.Int32
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			others := active.Add(1) - 1
			defer active.Add(-1)
			if d.Redelivered {
				alone.Add(1)
				if n, err := s.Attempt(ctx, "a", onceward.Record{ID: d.ID}); n != 2 || err != nil {
					t.Errorf("%s was counted %d times before its start, %v", d.ID, n-1, err)
				}
			}
			for range 10 {
				<-time.After(time.Millisecond)
				if d.Redelivered && (others > 0 || active.Load() > 1) {
					t.Errorf("%s does not run alone", d.ID)
				}
			}
			tx.Add(d.IdempotencyKey(), 1)
			return nil
		}
		other := memory.NewSource(msgs("n", 200)...)
		a := consumer(t, "a", src, s, h, onceward.Config{Lanes: 2})
		b := consumer(t, "b", other, s, h, onceward.Config{Lanes: 3, MaxBatch: 4})
		l := start(t, b, a)
		until(t, time.Minute, "all to be done", func() bool { return a.Stats().Processed == 10 && b.Stats().Processed == 200 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if n := alone.Load(); n != 5 {
			t.Errorf("%d ran alone, want 5", n)
		}
	})
}

// Without hints the first fresh records are suspects, and later ones are not.
func TestFirstRecordsWithoutHints(t *testing.T) {
	s := newFaulty()
	var counted atomic.Int32
	s.set(func(op string) error {
		if op == "Attempt" {
			counted.Add(1)
		}
		return nil
	}, nil)
	old := msgs("old", 30)
	run(t, consumer(t, "c", memory.Messages(old...), s, effect, onceward.Config{}))
	if n := counted.Swap(0); n != 0 {
		t.Errorf("%d of a source with hints were counted", n)
	}
	ms := msgs("m", 100)
	src := memory.Messages(append(old, ms...)...)
	src.NoHints = true
	c := consumer(t, "c", src, s, effect, onceward.Config{MaxBatch: 8, Lanes: 2})
	run(t, c)
	checkEffects(t, s.Store, append(idsOf(old), idsOf(ms)...)...)
	checkStats(t, c, onceward.Stats{Received: 130, Processed: 100, Duplicates: 30})
	if n := counted.Load(); n < 16 || n > 32 {
		t.Errorf("%d were counted, want 16, as many as can be in hand, and those of the batches at hand then", n)
	}
}

// What is dead, and read again at every start of a source without hints, is not started, and so not
// counted: later another body under its id is to run.
func TestWhatIsPutAsideIsNotCounted(t *testing.T) {
	s := memory.NewStore()
	h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
		if string(d.Body) == "bad" {
			return onceward.Permanent(errBad)
		}
		return effect(ctx, tx, d)
	}
	bad := &onceward.Message{ID: "a", Body: []byte("bad")}
	live := func(ms ...*onceward.Message) onceward.Stats {
		src := memory.Messages(ms...)
		src.NoHints = true
		c := consumer(t, "c", src, s, h, onceward.Config{Attempts: 3})
		run(t, c)
		return c.Stats()
	}
	if n := live(bad); n.Dead != 1 {
		t.Fatalf("%+v", n)
	}
	for range 5 {
		if n := live(bad); n.Duplicates != 1 {
			t.Fatalf("%+v", n)
		}
	}
	if n := live(bad, &onceward.Message{ID: "a", Body: []byte("good")}); n.Processed != 1 || n.Duplicates != 1 {
		t.Fatalf("%+v", n)
	}
	checkEffects(t, s, "a")
}

// A handler whose error reads like a conflict, every time, fails like any other.
func TestAnEndlessConflictIsCharged(t *testing.T) {
	for _, err := range []error{onceward.ErrConflict, onceward.ErrBusy} {
		bubble(t, func(t *testing.T) {
			s := memory.NewStore()
			h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
				if d.ID == "m3" {
					return fmt.Errorf("by another connection: %w", err)
				}
				return effect(ctx, tx, d)
			}
			c := consumer(t, "c", memory.Messages(msgs("m", 5)...), s, h, onceward.Config{Attempts: 1})
			run(t, c)
			checkParked(t, s, "m3 dead")
			if n := c.Stats(); n.Processed != 4 || n.Dead != 1 {
				t.Errorf("%+v", n)
			}
		})
	}
}
