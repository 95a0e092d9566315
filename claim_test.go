package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func TestRepeatsTakeEffectOnce(t *testing.T) {
	r := seed(t)
	for _, tt := range []struct {
		name      string
		config    onceward.Config
		consumers int
	}{
		{"in one batch", onceward.Config{MaxBatch: 1000}, 1},
		{"a transaction each", onceward.Config{MaxBatch: 1}, 1},
		{"in small batches", onceward.Config{MaxBatch: 7}, 1},
		{"across lanes", onceward.Config{MaxBatch: 7, Lanes: 4}, 1},
		{"across consumers", onceward.Config{MaxBatch: 7, Lanes: 2}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ms := msgs("m", 300)
			all := append(append(append([]*onceward.Message{}, ms...), ms...), ms[:100]...)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			s, src := memory.NewStore(), memory.Messages(all...)
			cs := make([]*onceward.Consumer, tt.consumers)
			for i := range cs {
				cs[i] = consumer(t, "c", src, s, effect, tt.config)
			}
			run(t, cs...)
			checkEffects(t, s, idsOf(ms)...)
			checkParked(t, s)
			var sum onceward.Stats
			for _, c := range cs {
				n := c.Stats()
				sum.Processed += n.Processed
				sum.Duplicates += n.Duplicates
			}
			if sum.Processed != 300 || sum.Duplicates != 400 || src.Pending() != 0 {
				t.Errorf("%d processed, %d duplicates, %d pending", sum.Processed, sum.Duplicates, src.Pending())
			}
		})
	}
}

// Both consumers have received their copy, and have claimed nothing, before either goes on.
func TestTwinsInFlight(t *testing.T) {
	for round := range 200 {
		s := newFaulty()
		var meet sync.WaitGroup
		meet.Add(2)
		var first atomic.Int32
		s.set(func(op string) error {
			if op == "Claim" && first.Add(1) <= 2 {
				meet.Done()
				meet.Wait()
				spin(rand.IntN(2000))
			}
			return nil
		}, nil)
		ran := atomic.Int32{}
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			ran.Add(1)
			spin(rand.IntN(2000))
			return effect(ctx, tx, d)
		}
		a := consumer(t, "c", memory.Messages(msg("twin")), s, h, onceward.Config{})
		b := consumer(t, "c", memory.Messages(msg("twin")), s, h, onceward.Config{})
		run(t, a, b)
		checkEffects(t, s.Store, "twin")
		if n := a.Stats().Processed + b.Stats().Processed; n != 1 || ran.Load() != 1 {
			t.Fatalf("round %d: %d processed, %d runs", round, n, ran.Load())
		}
	}
}

// spin takes a little time without giving up the processor in a way that a timer would.
func spin(n int) {
	for range n {
		_ = rand.Uint64()
	}
}

func TestUnknownCommit(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after func(string) error
	}{
		{"had happened", nil, only("InTx", 1, onceward.ErrInDoubt)},
		{"had not happened", only("InTx", 1, onceward.ErrInDoubt), nil},
		{"was unknown four times", only("InTx", 2, onceward.ErrInDoubt), only("InTx", 2, onceward.ErrInDoubt)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ms := msgs("m", 20)
				s := newFaulty()
				run(t, consumer(t, "c", memory.Messages(msg("old")), s, effect, onceward.Config{}))
				s.set(tt.before, tt.after)
				src := memory.Messages(append([]*onceward.Message{msg("old")}, ms...)...)
				c := consumer(t, "c", src, s, effect, onceward.Config{})
				run(t, c)
				checkEffects(t, s.Store, append(idsOf(ms), "old")...)
				checkParked(t, s)
				checkStats(t, c, onceward.Stats{Received: 21, Processed: 20, Duplicates: 1})
			})
		})
	}
}

// A handler's own unknown outcome is not the commit's: it is a failure like any other.
func TestHandlerInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(context.Context, *memory.Tx, *onceward.Delivery) error {
			return fmt.Errorf("publish: %w", onceward.ErrInDoubt)
		}
		c := consumer(t, "c", memory.Messages(msg("a")), s, h, onceward.Config{Attempts: 2, Backoff: every(0)})
		run(t, c)
		checkParked(t, s, "a dead")
		checkStats(t, c, onceward.Stats{Received: 1, Dead: 1, Failed: 2, Retried: 1})
	})
}

// A waiting copy whose commit is unknown deletes its row with it: it is processed, not lost.
func TestUnknownCommitOfARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			if d.Attempt == 1 {
				s.set(nil, only("InTx", 1, onceward.ErrInDoubt))
				return errBad
			}
			return effect(ctx, tx, d)
		}
		src := memory.NewSource(msg("a"))
		c := consumer(t, "c", src, s, h, onceward.Config{})
		l := start(t, c)
		until(t, time.Minute, "the retry to be done", func() bool { return c.Stats().Processed == 1 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s.Store, "a")
		checkParked(t, s)
		checkStats(t, c, onceward.Stats{Received: 1, Processed: 1, Failed: 1, Retried: 1})
	})
}

func TestConflictsAreNotCharged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		s.set(nil, nil)
		conflicts := 40
		var sizes []int
		s.set(func(op string) error {
			if op == "InTx" && conflicts > 0 {
				conflicts--
				return onceward.ErrConflict
			}
			return nil
		}, nil)
		ms := msgs("m", 600)
		var attempts atomic.Int32
		h := func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
			attempts.Store(max(attempts.Load(), int32(d.Attempt)))
			return effect(ctx, tx, d)
		}
		c := consumer(t, "c", memory.Messages(ms...), s, h, onceward.Config{
			Attempts: 1,
			Hooks:    &onceward.Hooks{Committed: func(_ string, n int, _ time.Duration) { sizes = append(sizes, n) }},
		})
		run(t, c)
		checkEffects(t, s.Store, idsOf(ms)...)
		checkParked(t, s)
		checkStats(t, c, onceward.Stats{Received: 600, Processed: 600})
		if attempts.Load() != 1 {
			t.Errorf("a handler saw attempt %d", attempts.Load())
		}
		if sizes[0] != 1 || slices.Max(sizes) < 64 {
			t.Errorf("batches: %v; want them to have shrunk and grown again", sizes)
		}
	})
}

// A message that another transaction holds for long stays behind alone; its neighbours go on.
func TestPersistentTwin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		release := make(chan struct{})
		held := make(chan struct{})
		other := make(chan error)
		go func() {
			other <- s.InTx(context.Background(), func(ctx context.Context, tx *memory.Tx) error {
				_, err := s.Claim(ctx, tx, "c", []onceward.Record{{ID: onceward.StoredID("m5")}})
				close(held)
				<-release
				return errors.Join(err, errBad)
			})
		}()
		<-held
		src := memory.NewSource(msgs("m", 40)...)
		c := consumer(t, "c", src, s, effect, onceward.Config{Attempts: 1})
		l := start(t, c)
		until(t, time.Minute, "the others to be done", func() bool { return c.Stats().Processed == 39 })
		src.Send(msg("n"))
		until(t, 20*time.Second, "a later one to be done", func() bool { return c.Stats().Processed == 40 })
		pass(3 * time.Minute)
		checkParked(t, s)
		close(release)
		if err := <-other; !errors.Is(err, errBad) {
			t.Error(err)
		}
		until(t, time.Minute, "the twin to be done", func() bool { return c.Stats().Processed == 41 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s, append(idsOf(msgs("m", 40)), "n")...)
		checkStats(t, c, onceward.Stats{Received: 41, Processed: 41})
	})
}

func TestTwoConsumersEachHaveTheirEffect(t *testing.T) {
	s := memory.NewStore()
	h := func(_ context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		tx.Add(d.IdempotencyKey(), 1)
		return nil
	}
	ms := []*onceward.Message{msg("a"), msg("a"), msg("b")}
	run(t, consumer(t, "x", memory.Messages(ms...), s, h, onceward.Config{}),
		consumer(t, "y", memory.Messages(ms...), s, h, onceward.Config{}))
	want := map[string]string{"x:a": "1", "x:b": "1", "y:a": "1", "y:b": "1"}
	if got := s.Values(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("effects: %v, want %v", got, want)
	}

	fails := func(context.Context, *memory.Tx, *onceward.Delivery) error { return onceward.Permanent(errBad) }
	run(t, consumer(t, "x", memory.Messages(msg("c")), s, fails, onceward.Config{}),
		consumer(t, "y", memory.Messages(msg("c")), s, fails, onceward.Config{}))
	checkParked(t, s, "c dead", "c dead")
}

func TestSameIDOtherBody(t *testing.T) {
	other := &onceward.Message{ID: "a", Body: []byte("other")}
	for _, tt := range []struct {
		name   string
		policy onceward.Mismatch
		stats  onceward.Stats
		parked []string
	}{
		{"is dead", onceward.MismatchDead, onceward.Stats{Received: 4, Processed: 1, Dead: 1, Duplicates: 2}, []string{"a dead"}},
		{"is a duplicate", onceward.MismatchDuplicate, onceward.Stats{Received: 4, Processed: 1, Duplicates: 3}, nil},
	} {
		for _, batch := range []int{1, 100} {
			t.Run(fmt.Sprint(tt.name, batch), func(t *testing.T) {
				s := memory.NewStore()
				src := memory.Messages(msg("a"), other, msg("a"), other)
				c := consumer(t, "c", src, s, effect, onceward.Config{Mismatch: tt.policy, MaxBatch: batch})
				run(t, c)
				checkEffects(t, s, "a")
				checkStats(t, c, tt.stats)
				ls := checkParked(t, s, tt.parked...)
				if len(ls) == 1 && (string(ls[0].Message.Body) != "other" || ls[0].Attempts != 0) {
					t.Errorf("the dead letter has body %q and %d attempts", ls[0].Message.Body, ls[0].Attempts)
				}
			})
		}
	}
}
