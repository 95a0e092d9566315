package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/onceward/onceward"
)

func txCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "commits", run: (*env[TTx]).txCommits},
		{name: "rolls back and wraps the error", run: (*env[TTx]).txRollsBack},
		{name: "rolls back on a panic, and goes on panicking", run: (*env[TTx]).txPanics},
		{name: "rolls back when the goroutine exits", run: (*env[TTx]).txGoexit},
		{name: "rolls back when the context ends", run: (*env[TTx]).txContext},
		{name: "does not begin after the context's end", run: (*env[TTx]).txContextEnded},
		{name: "a handle that outlives its transaction refuses use", run: (*env[TTx]).txOutlives},
		{name: "finds out that the handler ended it", run: (*env[TTx]).txEnded},
		{name: "finds out even if the handler failed", run: (*env[TTx]).txEndedAndFailed},
		{name: "is of use after a handler ended one", run: (*env[TTx]).txAfterEnded},
		{name: "everything in it commits, or nothing", run: (*env[TTx]).txAtomic},
		{name: "the store is ready", run: (*env[TTx]).txReady},
	}
}

func (e *env[TTx]) txCommits() {
	calls := 0
	e.must(e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		calls++
		return e.in.Effect(ctx, tx, "a")
	}))
	if calls != 1 {
		e.Fatalf("the function was called %d times", calls)
	}
	e.wantEffects(map[string]int{"a": 1})
}

func (e *env[TTx]) txRollsBack() {
	no := errors.New("no")
	err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		if err := e.in.Effect(ctx, tx, "a"); err != nil {
			e.Errorf("Effect: %v", err)
		}
		return fmt.Errorf("wrapped: %w", onceward.Permanent(no))
	})
	if !errors.Is(err, no) || !onceward.IsPermanent(err) {
		e.Fatalf("InTx = %v, want the function's permanent error", err)
	}
	for _, other := range []error{onceward.ErrConflict, onceward.ErrUnavailable, onceward.ErrInDoubt, onceward.ErrTxEnded, onceward.ErrTxEscaped} {
		if errors.Is(err, other) {
			e.Errorf("InTx = %v, which is also %v", err, other)
		}
	}
	e.wantEffects(nil)
}

func (e *env[TTx]) txPanics() {
	func() {
		defer func() {
			if p := recover(); p != "oh" {
				e.Errorf("recovered %v, want the function's panic", p)
			}
		}()
		err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			if err := e.in.Effect(ctx, tx, "a"); err != nil {
				e.Errorf("Effect: %v", err)
			}
			panic("oh")
		})
		e.Errorf("InTx returned %v after a panic", err)
	}()
	e.wantEffects(nil)
	e.txCommits()
}

func (e *env[TTx]) txGoexit() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			if _, err := e.s.Claim(ctx, tx, "c", recs("a")); err != nil {
				e.Errorf("Claim: %v", err)
			}
			runtime.Goexit()
			return nil
		})
	}()
	within(e.T, "the goroutine to exit", done)
	e.wantClaim("c", recs("a")[0], onceward.Fresh)
}

func (e *env[TTx]) txContext() {
	ctx, cancel := context.WithCancel(e.ctx)
	began, release, done := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	var later error
	go func() {
		done <- e.s.InTx(ctx, func(_ context.Context, tx TTx) error {
			_, err := e.s.Claim(ctx, tx, "c", recs("a"))
			if err == nil {
				err = e.in.Effect(ctx, tx, "before")
			}
			began <- err
			<-release
			later = e.in.Effect(context.WithoutCancel(ctx), tx, "after")
			return nil
		})
	}()
	if err := within(e.T, "the transaction", began); err != nil {
		e.Fatalf("the transaction: %v", err)
	}
	cancel()
	// The function has not returned: that its claim is free shows that the rollback did not wait for it.
	e.eventually("the claim to be given back", func() bool {
		c := within(e.T, "another claim", e.tryClaim(e.ctx, "c", recs("a")...))
		return c.err == nil && c.found[0] == onceward.Fresh
	})
	close(release)
	err := within(e.T, "InTx", done)
	if err == nil || errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrTxEscaped) {
		e.Errorf("InTx = %v after its context ended, want an error that does not blame the function", err)
	}
	if later == nil {
		e.Error("the transaction could be used after its context had ended")
	}
	e.wantEffects(nil)
}

func (e *env[TTx]) txContextEnded() {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	err := e.s.InTx(ctx, func(ctx context.Context, tx TTx) error {
		_ = e.in.Effect(context.WithoutCancel(ctx), tx, "a")
		return nil
	})
	if err == nil {
		e.Error("InTx succeeded with a context that had ended")
	}
	e.wantEffects(nil)
}

func (e *env[TTx]) txOutlives() {
	var kept TTx
	e.must(e.s.InTx(e.ctx, func(_ context.Context, tx TTx) error {
		kept = tx
		return nil
	}))
	e.wantRefused(kept)
	_ = e.s.InTx(e.ctx, func(_ context.Context, tx TTx) error {
		kept = tx
		return errors.New("roll back")
	})
	e.wantRefused(kept)
	e.wantEffects(nil)
	e.wantRecorded("c", recs("late"), false)
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) wantRefused(tx TTx) {
	e.Helper()
	if err := e.in.Effect(e.ctx, tx, "late"); err == nil {
		e.Error("an effect was possible after the transaction's end")
	}
	if _, err := e.s.Claim(e.ctx, tx, "c", recs("late")); err == nil {
		e.Error("a claim was possible after the transaction's end")
	}
	if err := e.s.Append(e.ctx, tx, "q", msg("late", "x")); err == nil {
		e.Error("Append was possible after the transaction's end")
	}
}

func (e *env[TTx]) txEnded() { e.eachEnding(nil) }

func (e *env[TTx]) txEndedAndFailed() { e.eachEnding(errors.New("the handler's own error")) }

func (e *env[TTx]) eachEnding(returned error) {
	if len(e.h.Ends) == 0 {
		e.Skip("the engine has no way for a handler to end its transaction")
	}
	for _, end := range e.h.Ends {
		e.Run(end.Name, func(t *testing.T) {
			c := *e
			c.T = t
			c.endedBy(end, returned)
		})
	}
}

func (e *env[TTx]) endedBy(end Ending[TTx], returned error) {
	e.in = e.h.Open(e.T)
	e.s = e.in.Store
	err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		if _, err := e.s.Claim(ctx, tx, "c", recs("a")); err != nil {
			e.Errorf("Claim: %v", err)
		}
		if err := e.in.Effect(ctx, tx, "before"); err != nil {
			e.Errorf("Effect: %v", err)
		}
		_ = end.End(ctx, tx)
		_ = e.in.Effect(ctx, tx, "after")
		_, _ = e.s.Claim(ctx, tx, "c", recs("b"))
		_ = e.s.Append(ctx, tx, "q", msg("m", "x"))
		return returned
	})
	escaped := errors.Is(err, onceward.ErrTxEscaped)
	if !escaped && !errors.Is(err, onceward.ErrTxEnded) {
		e.Fatalf("InTx = %v, want ErrTxEnded or ErrTxEscaped", err)
	}
	if returned != nil && !errors.Is(err, returned) {
		e.Errorf("InTx = %v, want it to wrap the handler's error too", err)
	}
	if e.in.Effects(e.T)["after"] > 0 && !escaped {
		e.Errorf("InTx = %v, although a later statement took effect, want ErrTxEscaped", err)
	}
	if !e.s.Guarded() {
		return
	}
	e.wantEffects(nil)
	e.wantRecorded("c", recs("a", "b"), false, false)
	e.wantRows(onceward.Filter{}, 0)
}

func (e *env[TTx]) txAfterEnded() {
	for _, end := range e.h.Ends {
		for range 3 {
			err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
				_ = end.End(ctx, tx)
				return nil
			})
			if err == nil {
				e.Fatalf("%s was not found out", end.Name)
			}
		}
		e.wantClaim("c", rec(end.Name, "x"), onceward.Fresh)
		e.wantClaim("c", rec(end.Name, "x"), onceward.Duplicate)
	}
}

func (e *env[TTx]) txAtomic() {
	for _, how := range []error{errors.New("roll back"), nil} {
		err := e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			found, err := e.s.Claim(ctx, tx, "c", recs("a", "b"))
			if err == nil && !slices.Equal(found, []onceward.Found{onceward.Fresh, onceward.Fresh}) {
				err = fmt.Errorf("found %v", names(found))
			}
			return errors.Join(err, e.in.Effect(ctx, tx, "a"), e.in.Effect(ctx, tx, "a"),
				e.s.Append(ctx, tx, "q", msg("m", "x")), how)
		})
		if (err == nil) != (how == nil) {
			e.Fatalf("InTx = %v, want %v", err, how)
		}
		n := map[bool]int{true: 1}[how == nil]
		e.wantEffects(map[string]int{"a": 2 * n})
		e.wantRecorded("c", recs("a", "b"), n > 0, n > 0)
		e.wantRows(onceward.Filter{Queue: "q"}, n)
	}
}

func (e *env[TTx]) txReady() {
	e.must(e.s.Ready(e.ctx))
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := e.s.Ready(ctx); err == nil {
		e.Error("Ready succeeded with a context that had ended")
	}
}
