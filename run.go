package onceward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Times that the consumer lives by.
const (
	pauseFirst   = 100 * time.Millisecond // between looks at a store or source that is away
	pauseMost    = 5 * time.Second
	longPause    = time.Minute      // a longer one gives back what is held
	settleWait   = 30 * time.Second // for the source's confirmation
	storeWait    = 30 * time.Second // for a step of the store within a transaction
	closeWait    = 10 * time.Second // for the source to take back what is not settled
	retryPoll    = 500 * time.Millisecond
	tidyInterval = time.Minute
)

// Runner is what [Run] runs: a consumer.
type Runner interface {
	// Run blocks until ctx ends, and then finishes what it started, or until it fails.
	Run(ctx context.Context) error
}

// Run runs all of rs until ctx ends, all have ended by themselves, or one fails, which stops the
// others. It returns when all have returned, with all their errors.
func Run(ctx context.Context, rs ...Runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(rs))
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Go(func() {
			if errs[i] = r.Run(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run is the one life of a consumer.
type run struct {
	*Consumer
	// soft ends when the consumer is to stop: nothing new is started then.
	soft context.Context //nolint:containedctx // the lifetime of the run itself
	stop context.CancelCauseFunc
	// ended ends when the source has, or soft: then nothing more will come to wait.
	ended context.Context
	// hard ends when the grace time is over. Handlers and transactions see only this one.
	hard context.Context //nolint:containedctx // as soft

	source   string // the source's name
	held     budget
	suspects suspects
	idSeen   bool

	halted sync.Once
	fatal  error // why the consumer stopped by itself, set before soft ends
}

// halt stops the consumer because of err, which Run will return.
func (r *run) halt(err error) {
	r.halted.Do(func() { r.fatal = err })
	r.stop(err)
}

var (
	errStopping  = errors.New("onceward: stopping")
	errGraceOver = errors.New("onceward: the grace time is over")
	errLongPause = errors.New("onceward: paused for more than a minute")
)

// Run consumes until ctx ends or the source does; it then finishes and settles what has started,
// gives back the rest, and returns nil. Handlers do not see ctx end: they have Config.Grace to
// finish. When the source or the store is away, Run pauses and goes on by itself. It returns an
// error for what no waiting cures, and for handlers that were cut off at the end of the grace time.
// A consumer runs once.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("onceward: consumer %s has run already; make another one", Quote(c.name))
	}
	hard, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	soft, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{Consumer: c, soft: soft, stop: stop, hard: hard, source: c.src.String(), idSeen: !c.needsID}
	draining := make(chan struct{})
	context.AfterFunc(soft, func() {
		defer close(draining)
		r.setState(Draining, nil)
		t := time.AfterFunc(c.cfg.Grace, func() { cut(errGraceOver) })
		context.AfterFunc(hard, func() { t.Stop() })
	})

	err := r.consume()
	<-draining // soft has ended, so that this was started
	if err == nil && errors.Is(context.Cause(hard), errGraceOver) {
		err = fmt.Errorf("onceward: consumer %s: %w (%s) with messages in hand; what the guarantee allows to be repeated will be delivered again",
			Quote(c.name), errGraceOver, c.cfg.Grace)
	}
	r.setState(Stopped, err)
	return err
}

// consume runs sessions, and beside them the retries, until the source ends or the consumer stops.
func (r *run) consume() error {
	if r.begin() != nil {
		return r.fatal // nil: told to stop before it had begun
	}
	r.setState(Running, nil)
	var retries, tidy sync.WaitGroup
	var end context.CancelFunc
	r.ended, end = context.WithCancel(r.soft)
	retries.Go(r.runRetries)
	tidy.Go(r.runTidy)

	if err := r.sessions(); err != nil && !errors.Is(err, errStopping) {
		r.halt(err)
	}
	end()
	retries.Wait()
	r.stop(nil)
	tidy.Wait()
	return r.fatal
}

// begin waits for the store, and counts what waits in it.
func (r *run) begin() error {
	if err := r.recovered(nil, nil); err != nil {
		return err
	}
	q, ok := r.work.retries().(Inspector)
	if !ok {
		return nil
	}
	return r.persist(nil, func(ctx context.Context) error {
		stats, err := q.Stats(ctx)
		for _, s := range stats {
			if s.Queue == Retries && s.Consumer == r.name {
				r.counts.waitingAtStart.Store(s.Waiting + s.InHand)
				r.counts.waiting.Store(s.Waiting + s.InHand)
			}
		}
		return err
	})
}

// sessions subscribes again whenever a session ends, until the source has ended or the consumer stops
// (nil), or no retry can cure it.
func (r *run) sessions() error {
	for wait := pauseFirst; ; {
		received, err := r.session()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case r.soft.Err() != nil:
			return nil //nolint:nilerr // told to stop: why the session ended does not matter
		case IsPermanent(err):
			return fmt.Errorf("onceward: consumer %s: source %s: %w", Quote(r.name), r.src, err)
		case errors.Is(err, errLongPause):
			if err := r.recovered(nil, err); err != nil {
				return err
			}
			continue
		}
		if received {
			wait = pauseFirst
		}
		r.setState(Paused, fmt.Errorf("source %s: %w", r.src, err))
		if !r.sleep(wait) {
			return nil
		}
		wait = min(2*wait, pauseMost)
	}
}

// recovered waits until the store can be written to, in the state Paused if the first look fails.
// Cause is what made the caller ask. It gives up when the consumer stops, and, within a session, after
// a long pause, so that others can have what the session holds.
func (r *run) recovered(s *session, cause error) error {
	started := time.Now()
	for wait := pauseFirst; ; wait = min(2*wait, pauseMost) {
		err := r.work.ready(r.hard)
		if err == nil {
			r.resume()
			return nil
		}
		if errors.Is(err, ErrNoSchema) || IsPermanent(err) {
			r.halt(fmt.Errorf("onceward: consumer %s: %w", Quote(r.name), err))
			return errStopping
		}
		r.setState(Paused, errors.Join(cause, err))
		if s != nil && time.Since(started) > longPause {
			s.end(errLongPause)
			return errLongPause
		}
		if !r.sleep(wait) {
			return errStopping
		}
	}
}

// resume ends a pause.
func (r *run) resume() {
	if r.Stats().State == Paused {
		r.setState(Running, nil)
	}
}

// persist does something with the store until it succeeds, pausing while the store is away. It gives
// up as recovered does.
func (r *run) persist(s *session, do func(ctx context.Context) error) error {
	for wait := pauseFirst; ; wait = min(2*wait, pauseMost) {
		err := do(r.hard)
		if err == nil || errors.Is(err, ErrLeaseLost) || r.hard.Err() != nil {
			return err
		}
		if err := r.recovered(s, err); err != nil {
			return err
		}
		if !r.sleep(wait) {
			return errStopping
		}
		r.log.Warn("the store refused; trying again", "error", err)
	}
}

// sleep reports whether the consumer goes on after d.
func (r *run) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.soft.Done():
		return false
	}
}

func (c *Consumer) setState(s State, why error) {
	var old State
	for {
		old = State(c.state.Load()) //nolint:gosec // set from a State only
		if old == s || old >= Draining && s < old {
			return
		}
		if c.state.CompareAndSwap(uint32(old), uint32(s)) {
			break
		}
	}
	switch {
	case s == Paused:
		c.log.Warn("paused; trying again", "reason", why)
	case s == Running && old == Paused:
		c.log.Info("running again")
	case why != nil:
		c.log.Error(s.String(), "reason", why)
	}
	if h := c.cfg.Hooks.State; h != nil {
		h(c.name, s, why)
	}
}

// budget bounds the bytes of the messages in hand.
type budget struct {
	mu   sync.Mutex
	held int64
	free chan struct{} // closed when some are given back while somebody waits
}

const mostHeld = 64 << 20

func (b *budget) wait(ctx context.Context) {
	for {
		b.mu.Lock()
		if b.held < mostHeld {
			b.mu.Unlock()
			return
		}
		if b.free == nil {
			b.free = make(chan struct{})
		}
		free := b.free
		b.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return
		}
	}
}

func (b *budget) add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held += n
	if b.free != nil && b.held < mostHeld {
		close(b.free)
		b.free = nil
	}
}
