package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/consumers"
)

const (
	prepareSlow  = 3 * time.Second // without a word
	prepareRetry = time.Second
)

// open opens the database and makes tables and consumers. Where the database is away or locked it
// waits as a run does: until --give-up-after if every source ends by itself, else until a signal,
// which is no error and sets w.stopped.
func (w *worker) open(ctx context.Context, cfg *config.Config) (err error) {
	if w.store, err = open(cfg); err != nil {
		return err
	}
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1) // there are no summaries yet, but it must not end the process
	defer signal.Stop(usr1)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	end := time.Now().Add(w.cmd.GiveUpAfter)
	var said sync.Once
	say := func(why any) { said.Do(func() { w.log.Warn("waiting for the database", "reason", why) }) }
	var why error
	for {
		slow := time.AfterFunc(prepareSlow, func() { say("it is locked, away, or busy with the setup file") })
		err := w.prepare(ctx, end)
		slow.Stop()
		switch {
		case ctx.Err() != nil: // a signal, which the caller could not see any more
			w.stopped.Store(true)
			w.log.Info("stopped before anything was read")
			return nil
		case err == nil:
			return nil
		case isFault(err) || !w.store.db.Passes(err):
			return err
		}
		if why == nil || !errors.Is(err, context.DeadlineExceeded) { // the time is up: that is no reason
			why = err
		}
		say(why)
		if finite(cfg) && time.Now().After(end) {
			return fmt.Errorf("the database was not ready for %s: %w", w.cmd.GiveUpAfter, why)
		}
		select {
		case <-time.After(prepareRetry):
		case <-ctx.Done():
		}
	}
}

// prepare tries once. Making tables waits for locks by itself, so it needs an end; the setup file may
// take as long as it likes.
func (w *worker) prepare(ctx context.Context, end time.Time) error {
	tables, cancel := ctx, context.CancelFunc(func() {})
	if finite(w.store.Config) {
		tables, cancel = context.WithDeadline(ctx, end)
	}
	err := w.store.makeTables(tables)
	cancel()
	if err != nil {
		return err
	}
	if err := w.store.setup(ctx); err != nil {
		return err
	}
	return w.build(ctx)
}

// build makes the consumers.
func (w *worker) build(ctx context.Context) (err error) {
	w.consumers, err = consumers.Build(ctx, consumers.Params{
		Config: w.store.Config, DB: w.store.db, Store: w.store.store, Stdin: w.app.in, Logger: w.log,
		Hooks: &onceward.Hooks{State: w.states.changed},
	})
	return err
}

// finite reports whether every source ends by itself.
func finite(cfg *config.Config) bool {
	for _, k := range cfg.Consumers {
		if !k.Source.Finite() {
			return false
		}
	}
	return true
}

// schemaOf replaces the engine's words about tables of a wrong version by the program's.
func (o *opened) schemaOf(ctx context.Context, err error) error {
	if !errors.Is(err, onceward.ErrNoSchema) {
		return err
	}
	if wrong := o.needTables(ctx); wrong != nil {
		return wrong
	}
	return err
}
