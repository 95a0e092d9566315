package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func TestValuesAreReadAsTheTransactionLeftThem(t *testing.T) {
	s := memory.NewStore()
	err := s.InTx(t.Context(), func(_ context.Context, tx *memory.Tx) error {
		tx.Put("a", "1")
		if n := tx.Add("a", 41); n != 42 {
			t.Errorf("Add = %d, want 42", n)
		}
		if v, ok := tx.Get("a"); v != "42" || !ok {
			t.Errorf("Get = %q, %v", v, ok)
		}
		if v, ok := s.Value("a"); ok {
			t.Errorf("before the commit, Value = %q", v)
		}
		return nil
	})
	if v, _ := s.Value("a"); v != "42" || err != nil {
		t.Fatalf("Value = %q, %v, want 42", v, err)
	}
}

func TestAddToATextFailsTheTransaction(t *testing.T) {
	s := memory.NewStore()
	err := s.InTx(t.Context(), func(_ context.Context, tx *memory.Tx) error {
		tx.Put("a", "text")
		tx.Add("a", 1)
		tx.Put("b", "1")
		return nil
	})
	if err == nil || len(s.Values()) != 0 {
		t.Fatalf("InTx = %v, values %v", err, s.Values())
	}
}

func TestConcurrentSumsAreExact(t *testing.T) {
	s := memory.NewStore()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				if err := s.InTx(t.Context(), func(_ context.Context, tx *memory.Tx) error {
					tx.Add("sum", 1)
					return nil
				}); err != nil {
					t.Errorf("InTx: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if v, _ := s.Value("sum"); v != "1000" {
		t.Fatalf("sum = %s, want 1000", v)
	}
}

func TestADeadlockEndsAfterLockWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		start := time.Now()
		var both sync.WaitGroup
		both.Add(2)
		errs := make(chan error, 2)
		for _, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
			go func() {
				errs <- s.InTx(t.Context(), func(_ context.Context, tx *memory.Tx) error {
					tx.Put(keys[0], "x")
					both.Done()
					both.Wait()
					tx.Put(keys[1], "x")
					return nil
				})
			}()
		}
		err := errors.Join(<-errs, <-errs)
		if !errors.Is(err, onceward.ErrConflict) {
			t.Errorf("both ended with %v, want a conflict", err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v, want LockWait", took)
		}
	})
}

func TestAClaimOfATwinThatStaysIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		claim := func(ctx context.Context, tx *memory.Tx) error {
			_, err := s.Claim(ctx, tx, "c", []onceward.Record{{ID: "a"}})
			return err
		}
		err := s.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			if err := claim(ctx, tx); err != nil {
				return err
			}
			if err := s.InTx(ctx, claim); !errors.Is(err, onceward.ErrBusy) {
				return fmt.Errorf("the twin: %w", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestATransactionOfAnotherStoreIsRefused(t *testing.T) {
	s, other := memory.NewStore(), memory.NewStore()
	err := other.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.Claim(ctx, tx, "c", []onceward.Record{{ID: "a"}})
		return err
	})
	if err == nil {
		t.Fatal("a claim in another store's transaction succeeded")
	}
}

func TestWaitSeesWhatCameBetweenLeaseAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		p := onceward.LeaseParams{Queue: "q", Max: 1, For: time.Minute}
		if _, err := s.Lease(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		put := func(due time.Duration) {
			t.Helper()
			if err := s.Put(t.Context(), onceward.Entry{Queue: "q", Message: onceward.Message{ID: fmt.Sprint(due)}, Due: due}); err != nil {
				t.Fatal(err)
			}
		}
		waits := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			if err := s.Wait(t.Context(), "q"); err != nil || time.Since(start) != want {
				t.Errorf("Wait took %v, %v, want %v", time.Since(start), err, want)
			}
		}
		put(0)
		waits(0)
		if ls, err := s.Lease(t.Context(), p); len(ls) != 1 || err != nil {
			t.Fatalf("leased %d, %v", len(ls), err)
		}
		waits(time.Second)
		put(300 * time.Millisecond)
		waits(300 * time.Millisecond)
	})
}
