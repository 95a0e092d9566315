package onceward_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func batchConsumer(t *testing.T, src onceward.Source, s onceward.Store[*memory.Tx], h onceward.TxBatchHandler[*memory.Tx], c onceward.Config) *onceward.Consumer {
	t.Helper()
	c.Logger = quiet
	co, err := onceward.EffectivelyOnceBatch("c", src, s, h, &c)
	if err != nil {
		t.Fatal(err)
	}
	return co
}

func without(ids []string, out ...string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(out, id) })
}

func TestBatchHandlerFails(t *testing.T) {
	for name, fail := range map[string]func(d *onceward.Delivery) error{
		"and says whose fault it is":     func(d *onceward.Delivery) error { return fmt.Errorf("batch: %w", d.Fail(errBad)) },
		"and does not say whose":         func(*onceward.Delivery) error { return errBad },
		"and returns nil all the same":   func(d *onceward.Delivery) error { _ = d.Fail(errBad); return nil },
		"with a panic":                   func(*onceward.Delivery) error { panic("bad") },
		"permanently, in the last place": func(d *onceward.Delivery) error { return d.Fail(onceward.Permanent(errBad)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memory.NewStore()
				calls := 0
				h := func(ctx ctx, tx *memory.Tx, ds []*onceward.Delivery) error {
					calls++
					for _, d := range ds {
						if d.ID == "m60" {
							return fail(d)
						}
						_ = effect(ctx, tx, d)
					}
					return nil
				}
				ms := msgs("m", 100)
				c := batchConsumer(t, memory.Messages(ms...), s, h, onceward.Config{Attempts: 1, MaxBatch: 100})
				run(t, c)
				checkEffects(t, s, without(idsOf(ms), "m60")...)
				if ls := checkParked(t, s, "m60 dead"); len(ls) != 1 || !strings.Contains(ls[0].Reason, "bad") || ls[0].Attempts != 1 {
					t.Errorf("put aside: %v", ls)
				}
				if n := c.Stats(); n.Processed != 99 || n.Dead != 1 {
					t.Errorf("%+v", n)
				}
				if calls > 20 {
					t.Errorf("%d calls", calls)
				}
			})
		})
	}
}

// Some of a batch are finished already, or twice in it: the handler sees the fresh ones only, once.
func TestBatchWithDuplicates(t *testing.T) {
	r := seed(t)
	for _, old := range []int{0, 1, 25, 49, 50} {
		for range 4 {
			ms := msgs("m", 50)
			s := memory.NewStore()
			first := slices.Clone(ms)
			r.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
			if old > 0 {
				run(t, consumer(t, "c", memory.Messages(first[:old]...), s, effect, onceward.Config{}))
			}
			all := append(slices.Clone(ms), ms[7], ms[7], ms[49])
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			h := func(ctx ctx, tx *memory.Tx, ds []*onceward.Delivery) error {
				seen := map[string]bool{}
				for _, d := range ds {
					if seen[d.ID] || d.Attempt != 1 {
						t.Errorf("%s came twice, or again: attempt %d", d.ID, d.Attempt)
					}
					seen[d.ID] = true
					_ = effect(ctx, tx, d)
				}
				return nil
			}
			c := batchConsumer(t, memory.Messages(all...), s, h, onceward.Config{})
			run(t, c)
			checkEffects(t, s, idsOf(ms)...)
			checkStats(t, c, onceward.Stats{Received: 53, Processed: int64(50 - old), Duplicates: int64(old + 3)})
		}
	}
}

func TestEmit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			body := fmt.Appendf(nil, "attempt %d", d.Attempt)
			d.Emit("first", "a", &onceward.Message{ID: "ignored", Topic: "t", Body: body})
			d.Emit("second", "b", &onceward.Message{Body: body})
			d.Emit("first", "c:d", &onceward.Message{Body: body})
			if d.ID == "m1" && d.Attempt == 1 {
				return errBad
			}
			return effect(ctx, tx, d)
		}
		src := memory.NewSource(msg("m0"), msg("m1"), msg("m2"), msg("m0"))
		c := consumer(t, "c", src, s, h, onceward.Config{Backoff: every(time.Second)})
		l := start(t, c)
		until(t, time.Minute, "all to be done", func() bool { return c.Stats().Processed == 3 })
		src.Send(msg("m1"))
		until(t, time.Minute, "the repeat to be dropped", func() bool { return c.Stats().Duplicates == 2 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		var got []string
		for _, q := range []string{"first", "second"} {
			for _, l := range rows(t, s, q) {
				got = append(got, fmt.Sprintf("%s %s %s", q, l.Message.ID, l.Message.Body))
			}
		}
		want := []string{
			"first m0#c:a attempt 1", "first m0#c:c%3Ad attempt 1", "first m2#c:a attempt 1", "first m2#c:c%3Ad attempt 1",
			"first m1#c:a attempt 2", "first m1#c:c%3Ad attempt 2",
			"second m0#c:b attempt 1", "second m2#c:b attempt 1", "second m1#c:b attempt 2",
		}
		if !slices.Equal(got, want) {
			t.Errorf("emitted\n%q, want\n%q", got, want)
		}
	})
}

func TestEmitLabelTwice(t *testing.T) {
	twice := func(d *onceward.Delivery) {
		d.Emit("out", "x", msg("1"))
		if d.ID == "m1" {
			d.Emit("other", "x", msg("2"))
		}
	}
	for name, build := range map[string]func(s *memory.Store, src onceward.Source) *onceward.Consumer{
		"one": func(s *memory.Store, src onceward.Source) *onceward.Consumer {
			return consumer(t, "c", src, s, func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
				twice(d)
				return effect(ctx, tx, d)
			}, onceward.Config{})
		},
		"many": func(s *memory.Store, src onceward.Source) *onceward.Consumer {
			return batchConsumer(t, src, s, func(ctx ctx, tx *memory.Tx, ds []*onceward.Delivery) error {
				for _, d := range ds {
					twice(d)
					_ = effect(ctx, tx, d)
				}
				return nil
			}, onceward.Config{})
		},
	} {
		s := memory.NewStore()
		c := build(s, memory.Messages(msgs("m", 4)...))
		run(t, c)
		checkEffects(t, s, "m0", "m2", "m3")
		if ls := checkParked(t, s, "m1 dead"); len(ls) != 1 || !strings.Contains(ls[0].Reason, "label") {
			t.Errorf("%s: %v", name, ls)
		}
		if n := len(rows(t, s, "out")); n != 3 {
			t.Errorf("%s: %d emitted", name, n)
		}
	}
}

// A hand-made Delivery serves a test of a handler.
func TestDeliveryByHand(t *testing.T) {
	d := &onceward.Delivery{Message: *msg("a")}
	d.Emit("out", "x", &onceward.Message{Body: []byte("b")})
	if ms := d.Emitted(); len(ms) != 1 || ms[0].ID != d.Child("x") {
		t.Errorf("emitted %v", ms)
	}
	if err := d.Fail(nil); err != nil {
		t.Error(err)
	}
}

// What nobody would read is not emitted, and says so.
func TestEmitToNowhere(t *testing.T) {
	for name, emit := range map[string]func(*onceward.Delivery){
		"no name": func(d *onceward.Delivery) { d.Emit("", "l", &onceward.Message{}) },
		"retries": func(d *onceward.Delivery) { d.Emit(onceward.Retries, "l", &onceward.Message{}) },
		"nil":     func(d *onceward.Delivery) { d.Emit("q", "l", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.NewStore()
			h := func(_ ctx, _ *memory.Tx, d *onceward.Delivery) error { emit(d); return nil }
			c := consumer(t, "c", memory.Messages(msg("a")), s, h, onceward.Config{})
			run(t, c)
			checkParked(t, s, "a dead")
		})
	}
}
