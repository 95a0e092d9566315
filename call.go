package onceward

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// isolation lets a message that may be the one which killed the process run with no other handler
// active in this process: if it kills again, only its own count of starts has grown.
var isolation = newExclusion()

// exclusion is a read-write lock that is had in the order of asking, so that neither kind starves the
// other. Unlike sync.RWMutex, waiting for it lets time go on in a testing/synctest bubble.
type exclusion struct {
	mu            sync.Mutex
	changed       *sync.Cond
	asked, served int // tickets
	shared, alone int // those that have it
}

func newExclusion() *exclusion {
	e := &exclusion{}
	e.changed = sync.NewCond(&e.mu)
	return e
}

// lock enters, alone or with others that did not ask to be alone.
func (e *exclusion) lock(alone bool) (unlock func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ticket := e.asked
	e.asked++
	for e.served < ticket || e.alone > 0 || alone && e.shared > 0 {
		e.changed.Wait()
	}
	e.served++
	n := &e.shared
	if alone {
		n = &e.alone
	}
	*n++
	e.changed.Broadcast()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		*n--
		e.changed.Broadcast()
	}
}

var (
	errAbandoned = errors.New("onceward: the handler did not return in time; it was abandoned and its transaction rolled back")
	errGoexit    = errors.New("onceward: the handler ended its goroutine")
	errNoAnswer  = fmt.Errorf("%w: no answer from the store for %s", ErrUnavailable, storeWait)
)

// outcome is how a batch went.
type outcome struct {
	err    error
	blamed int     // whose fault err is, by index; -1: unknown
	ran    int     // how many handlers were started
	found  []Found // per item, once committed
}

// supervise runs do, which calls handlers, under a watch, with a context that ends when the grace time
// does.
func (r *run) supervise(do func(ctx context.Context, w *watch) outcome) outcome {
	ctx, cancel := context.WithCancelCause(r.hard)
	defer cancel(nil)
	w := newWatch(r.cfg.Timeout)
	o := w.run(r.hard, cancel, func() outcome { return do(ctx, w) })
	if errors.Is(o.err, errAbandoned) || errors.Is(o.err, errGoexit) {
		r.counts.failed.Add(1) // call could not
	}
	return o
}

// watch keeps an eye on the handlers that a goroutine runs one after the other, to abandon one that
// does not return.
type watch struct {
	timeout time.Duration

	mu        sync.Mutex
	current   int // index of the running handler; -1 between handlers
	since     time.Time
	abandoned bool
}

func newWatch(timeout time.Duration) *watch {
	return &watch{timeout: timeout, current: -1, since: time.Now()}
}

// enter notes that handler i starts, or with -1 that none runs. It reports whether the goroutine has
// been abandoned, and must not go on.
func (w *watch) enter(i int) (abandoned bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current, w.since = i, time.Now()
	return w.abandoned
}

// run runs do in a goroutine of its own and returns its outcome, or abandons it: then cancel is
// called, and do's later outcome is dropped. That happens too if do does not return soon after hard
// has ended.
func (w *watch) run(hard context.Context, cancel context.CancelCauseFunc, do func() outcome) outcome {
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: errGoexit, blamed: -1}
		defer func() {
			if errors.Is(o.err, errGoexit) {
				w.mu.Lock()
				o.blamed = w.current
				w.mu.Unlock()
				o.ran = o.blamed + 1
			}
			done <- o
		}()
		o = do()
	}()
	timer := time.NewTimer(w.timeout + w.slack())
	defer timer.Stop()
	cut := hard.Done()
	var last <-chan time.Time
	for {
		select {
		case o := <-done:
			return o
		case <-cut:
			cut, last = nil, time.After(w.slack())
		case <-last:
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.abandon(cancel)
		case <-timer.C:
			o, over, next := w.look(cancel)
			if over {
				return o
			}
			timer.Reset(next)
		}
	}
}

// slack is how long after its time-out a handler may take to return.
func (w *watch) slack() time.Duration {
	return min(max(w.timeout/4, 100*time.Millisecond), 5*time.Second)
}

// look decides whether to go on waiting, and for how long.
func (w *watch) look(cancel context.CancelCauseFunc) (o outcome, over bool, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := time.Since(w.since)
	if w.current < 0 {
		switch {
		case took > storeWait+w.slack():
			w.abandoned = true
			return outcome{err: fmt.Errorf("%w: %w", ErrInDoubt, errNoAnswer), blamed: -1}, true, 0
		case took > storeWait:
			cancel(errNoAnswer)
			return o, false, w.slack()
		}
		return o, false, storeWait - took + time.Millisecond
	}
	if most := w.timeout + w.slack(); took < most {
		return o, false, most - took + time.Millisecond
	}
	return w.abandon(cancel), true, 0
}

// abandon leaves the goroutine to itself. The caller holds w.mu.
func (w *watch) abandon(cancel context.CancelCauseFunc) outcome {
	w.abandoned = true
	cancel(errAbandoned)
	return outcome{err: errAbandoned, blamed: w.current, ran: w.current + 1}
}

// call runs one handler call, under the watch as number i.
func (r *run) call(ctx context.Context, w *watch, i int, d *Delivery, h func(ctx context.Context) error) (err error) {
	if w.enter(i) {
		return errAbandoned
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	started := time.Now()
	err = r.guarded(ctx, d, h)
	if err == nil && d.emitErr != nil {
		err = d.emitErr
	}
	if w.enter(-1) {
		return errAbandoned
	}
	if err != nil {
		r.counts.failed.Add(1)
	}
	if f := r.cfg.Hooks.Attempted; f != nil {
		f(r.name, d, time.Since(started), err)
	}
	return err
}

// guarded makes an error of a panic.
func (r *run) guarded(ctx context.Context, d *Delivery, h func(ctx context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("onceward: the handler panicked: %v", p)
			r.log.Error("the handler panicked", "id", short(d.ID), "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return h(ctx)
}

// delivery is what the handler sees of an item.
func (r *run) delivery(it *item) Delivery {
	return Delivery{
		Message: it.Message, Attempt: it.attempt, Redelivered: it.Redelivered || it.attempt > 1,
		Source: r.source, Position: it.Position, consumer: r.name,
	}
}
