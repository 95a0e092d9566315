package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func onceEffect(id string) func(ctx, *memory.Tx) error {
	return func(_ ctx, tx *memory.Tx) error {
		tx.Add(effectOf(id), 1)
		return nil
	}
}

func TestOnceAmongMany(t *testing.T) {
	s := memory.NewStore()
	var ran, calls atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			ok, err := onceward.Once(t.Context(), s, "c", "a", func(ctx ctx, tx *memory.Tx) error {
				calls.Add(1)
				return onceEffect("a")(ctx, tx)
			})
			if err != nil {
				t.Error(err)
			}
			if ok {
				ran.Add(1)
			}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || calls.Load() != 1 {
		t.Errorf("%d say that it ran; it was called %d times", ran.Load(), calls.Load())
	}
	checkEffects(t, s, "a")
}

func TestOnceFails(t *testing.T) {
	s := memory.NewStore()
	ran, err := onceward.Once(t.Context(), s, "c", "a", func(ctx ctx, tx *memory.Tx) error {
		_ = onceEffect("a")(ctx, tx)
		return errBad
	})
	if ran {
		t.Error("it says that it ran")
	}
	checkErrorIs(t, err, errBad)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = onceward.Once(t.Context(), s, "c", "a", func(ctx ctx, tx *memory.Tx) error {
			_ = onceEffect("a")(ctx, tx)
			panic("bad")
		})
	}()
	checkEffects(t, s)
	if ran, err := onceward.Once(t.Context(), s, "c", "a", onceEffect("a")); !ran || err != nil {
		t.Errorf("after failures: %v, %v", ran, err)
	}
	checkEffects(t, s, "a")
	for _, names := range [][2]string{{"", "a"}, {"c", ""}} {
		if _, err := onceward.Once(t.Context(), s, names[0], names[1], onceEffect("x")); err == nil {
			t.Errorf("Once took %q", names)
		}
	}
}

func TestOnceInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after func(string) error
		doubt         bool
	}{
		"had happened":     {nil, only("InTx", 1, onceward.ErrInDoubt), false},
		"had not happened": {only("InTx", 1, onceward.ErrInDoubt), nil, false},
		"stays unknown":    {nil, only("InTx", -1, onceward.ErrInDoubt), true},
		"conflict":         {only("InTx", 3, onceward.ErrConflict), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newFaulty()
				s.set(tt.before, tt.after)
				ran, err := onceward.Once(t.Context(), s, "c", "a", onceEffect("a"))
				if tt.doubt {
					checkErrorIs(t, err, onceward.ErrInDoubt)
				} else if !ran || err != nil {
					t.Errorf("%v, %v", ran, err)
				}
				checkEffects(t, s.Store, "a")
				s.set(nil, nil)
				if ran, err := onceward.Once(t.Context(), s, "c", "a", onceEffect("a")); ran || err != nil {
					t.Errorf("again: %v, %v", ran, err)
				}
				checkEffects(t, s.Store, "a")
			})
		})
	}
}

// An outcome that became unknown and then could not be looked up stays unknown.
func TestOnceInDoubtAndAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		n := 0
		s.set(func(op string) error {
			if op == "InTx" {
				if n++; n > 1 {
					return onceward.ErrUnavailable
				}
			}
			return nil
		}, only("InTx", 1, onceward.ErrInDoubt))
		_, err := onceward.Once(t.Context(), s, "c", "a", onceEffect("a"))
		checkErrorIs(t, err, onceward.ErrInDoubt)
		checkErrorIs(t, err, onceward.ErrUnavailable)
	})
}

// What fn says of something else's outcome is fn's failure: it was rolled back, and is not run again.
func TestOnceOthersDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		calls := 0
		_, err := onceward.Once(t.Context(), s, "c", "a", func(ctx, *memory.Tx) error {
			calls++
			return fmt.Errorf("publish: %w", onceward.ErrInDoubt)
		})
		checkErrorIs(t, err, onceward.ErrInDoubt)
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestOnceBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		_, err := onceward.Once(t.Context(), s, "c", "a", func(ctx, *memory.Tx) error {
			_, err := onceward.Once(context.WithoutCancel(t.Context()), s, "c", "a", onceEffect("a"))
			checkErrorIs(t, err, onceward.ErrBusy)
			return errors.New("rolled back")
		})
		if err == nil {
			t.Error("no error")
		}
		checkEffects(t, s)
	})
}
