package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/consumers"
)

type runCmd struct {
	Config      string        `arg:"" help:"The config file." placeholder:"CONFIG"`
	Summary     string        `enum:"text,json" default:"text" help:"How to print the summaries: text or json."`
	JSON        bool          `help:"The same as --summary json."`
	Strict      bool          `help:"Exit with status 3 if dead letters remain in the store."`
	LogLevel    slog.Level    `default:"info" help:"debug, info, warn or error."`
	GiveUpAfter time.Duration `default:"30s" help:"Stop, where every source ends by itself, when a consumer has been waiting so long for its database."`
}

// Run is the command.
func (c *runCmd) Run(ctx context.Context, a *app) error {
	cfg, err := config.Load(c.Config)
	if err == nil {
		err = cfg.RequireConsumers()
	}
	if err != nil {
		return err
	}
	term := newTerminal(a.err)
	logger := slog.New(slog.NewTextHandler(term, &slog.HandlerOptions{Level: c.LogLevel}))
	w := &worker{cmd: c, app: a, term: term, log: logger, states: newStates()}
	if err := w.open(ctx, cfg); err != nil {
		return errors.Join(err, w.close())
	}
	return errors.Join(w.run(ctx), w.close())
}

// worker is a run of the consumers of a config file.
type worker struct {
	cmd       *runCmd
	app       *app
	term      *terminal
	log       *slog.Logger
	store     *opened
	consumers []*consumers.Consumer
	states    *states
	began     time.Time
	stopped   atomic.Bool // by a signal, or for want of a database
}

func (w *worker) open(ctx context.Context, cfg *config.Config) (err error) {
	if w.store, err = open(cfg); err != nil {
		return err
	}
	return w.build(ctx)
}

// build makes tables and consumers in the open store.
func (w *worker) build(ctx context.Context) (err error) {
	if err := w.store.makeTables(ctx); err != nil {
		return err
	}
	if err := w.store.setup(ctx); err != nil {
		return err
	}
	w.consumers, err = consumers.Build(ctx, consumers.Params{
		Config: w.store.Config, DB: w.store.db, Store: w.store.store, Stdin: w.app.in, Logger: w.log,
		Hooks: &onceward.Hooks{State: w.states.changed},
	})
	return err
}

func (w *worker) close() error {
	err := consumers.Close(w.consumers)
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	return err
}

// run runs the consumers until their sources have ended, a signal comes, or one fails.
func (w *worker) run(ctx context.Context) error {
	w.began = time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopHTTP, err := w.serve(ctx)
	if err != nil {
		return err
	}
	defer stopHTTP()
	defer w.signals(ctx, cancel)()
	defer w.every(time.Second, func() { w.watch(cancel) })()
	if w.term.tty {
		defer w.every(200*time.Millisecond, func() { w.term.show(w.bar()) })()
	}

	runners := make([]onceward.Runner, len(w.consumers))
	for i, c := range w.consumers {
		runners[i] = c
	}
	err = onceward.Run(ctx, runners...)
	w.term.show("")
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		err = errors.Join(why, err)
	}
	return w.report(context.WithoutCancel(ctx), err)
}

// report prints the summaries, and decides how the run ends.
func (w *worker) report(ctx context.Context, err error) error {
	dead, sumErr := w.printSummaries(ctx, w.app.out)
	if err == nil {
		err = sumErr
	}
	if err != nil {
		return err
	}
	if w.cmd.Strict && dead > 0 {
		return &exitError{exitDead, fmt.Errorf("there are dead letters, %s in all; see: onceward dead list %s", thousands(dead), w.cmd.Config)}
	}
	return nil
}

// signals ends the run at the first SIGINT or SIGTERM, the process at the second, and prints the
// summaries at SIGUSR1.
func (w *worker) signals(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGUSR1)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		ending := false
		for {
			select {
			case s := <-c:
				switch {
				case s == syscall.SIGUSR1:
					if _, err := w.printSummaries(context.WithoutCancel(ctx), w.app.out); err != nil {
						w.log.Error("summary", "err", err)
					}
				case ending:
					w.log.Warn("stopping at once", "signal", s.String())
					os.Exit(exitFailed)
				default:
					ending = true
					w.stopped.Store(true)
					w.log.Info("finishing what has started; a second signal stops at once", "signal", s.String())
					cancel(nil)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
		<-finished
	}
}

// every calls f again and again until stop has returned.
func (w *worker) every(interval time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-finished
	}
}

// watch ends the run where every source ends by itself and a consumer has been paused for too long:
// whoever started it waits for its end, and nobody looks at its log.
func (w *worker) watch(cancel context.CancelCauseFunc) {
	for _, c := range w.consumers {
		if !c.Config.Source.Finite() {
			return
		}
	}
	for _, c := range w.consumers {
		if since, why := w.states.paused(c.Name()); !since.IsZero() && time.Since(since) >= w.cmd.GiveUpAfter {
			w.stopped.Store(true)
			cancel(fmt.Errorf("consumer %s could not go on for %s: %w", c.Name(), w.cmd.GiveUpAfter, why))
			return
		}
	}
}

// bar is one line about how far the consumers are.
func (w *worker) bar() string {
	took := time.Since(w.began).Seconds()
	var done, total, received int64
	known := true
	for _, c := range w.consumers {
		received += c.Stats().Received
		if c.Progress == nil {
			known = false
			continue
		}
		d, t := c.Progress.Bytes()
		done, total, known = done+d, total+t, known && t > 0
	}
	rate := fmt.Sprintf("%s messages, %s/s", thousands(received), thousands(int64(float64(received)/max(took, 0.001))))
	if !known || total == 0 {
		return rate
	}
	return fmt.Sprintf("%s %s of %s, %s", gauge(done, total), size(done), size(total), rate)
}
