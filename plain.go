package onceward

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// once is AtMostOnce: settle, confirmed → handle.
type once struct {
	c *Consumer
	h Handler
}

func (o *once) ready(context.Context) error         { return nil }
func (o *once) retries() Queue                      { return nil }
func (o *once) retry(*lane, *item)                  {}
func (o *once) known(context.Context) (bool, error) { return true, nil }
func (o *once) tidy(context.Context) error          { return nil }

func (o *once) process(l *lane, items []*item) {
	if !l.s.settle(items, acked) {
		l.counts.givenBack.Add(int64(len(items))) // unless it was settled after all: then it is lost
		return
	}
	for _, it := range items {
		if it.skip {
			l.counts.skipped.Add(1)
			continue
		}
		if err := l.callPlain(it, o.h, nil, false); err != nil {
			l.log.Error("the handler failed; under AtMostOnce the message is lost", "id", short(it.ID), "error", err)
		}
		l.counts.processed.Add(1)
	}
}

// atLeast is AtLeastOnce: handle → settle.
type atLeast struct {
	c *Consumer
	h Handler
}

func (a *atLeast) ready(ctx context.Context) error {
	if s, ok := a.c.cfg.Queue.(interface {
		Ready(ctx context.Context) error
	}); ok {
		return s.Ready(ctx)
	}
	return nil
}
func (a *atLeast) retries() Queue                      { return a.c.cfg.Queue }
func (a *atLeast) known(context.Context) (bool, error) { return true, nil }
func (a *atLeast) tidy(context.Context) error          { return nil }

// ackEvery is how long a finished message of a batch may wait for the others to be settled.
const ackEvery = 100 * time.Millisecond

func (a *atLeast) process(l *lane, items []*item) {
	var finished []*item
	first := time.Now()
	flush := func() {
		l.done(finished...)
		finished, first = finished[:0], time.Now()
	}
	for i, it := range items {
		if l.stopped() {
			flush()
			l.returned(items[i:])
			return
		}
		if it.suspect && !it.Redelivered && !l.suspects.next() {
			it.suspect = false
		}
		switch {
		case it.skip:
			l.counts.skipped.Add(1)
			finished = append(finished, it)
		case it.suspect && a.retries() != nil:
			a.quarantine(l, it)
		default:
			if a.attempt(l, it) {
				finished = append(finished, it)
			}
		}
		if time.Since(first) > ackEvery {
			flush()
		}
	}
	flush()
}

// quarantine moves a message that may have killed the process to the store, where its starts are
// counted before they happen.
func (a *atLeast) quarantine(l *lane, it *item) {
	if !it.Redelivered {
		l.suspects.met()
	}
	a.putAside(l, it, Entry{State: Waiting, Attempts: it.attempt - 1, Reason: "it may have been handled before; to run on its own"})
}

// attempt runs the handler and sees to a failure. It reports whether the item is to be settled as
// done.
func (a *atLeast) attempt(l *lane, it *item) (done bool) {
	err := l.callPlain(it, a.h, a.retries(), it.suspect)
	for notEmitted(err) && l.recovered(l.s, err) == nil && l.sleep(pauseFirst) {
		err = l.callPlain(it, a.h, a.retries(), it.suspect)
	}
	switch {
	case err == nil:
		l.counts.resolved(it, &l.counts.processed)
		return true
	case l.hard.Err() != nil || notEmitted(err):
		l.returned([]*item{it})
	default:
		a.fail(l, it, err)
	}
	return false
}

func (a *atLeast) fail(l *lane, it *item, err error) {
	dead := IsPermanent(err) || l.cfg.Attempts != Unlimited && it.attempt >= l.cfg.Attempts
	wait := l.backoff(it.attempt, err)
	switch {
	case it.waited:
		a.finish(l, it, dead, wait, err)
	case a.retries() != nil:
		e := Entry{State: Waiting, Attempts: it.attempt, Due: wait, Reason: err.Error()}
		if dead {
			e.State = Dead
		}
		a.putAside(l, it, e)
	case dead:
		if l.s.settle([]*item{it}, func(*item) Settlement { return Settlement{Verdict: Reject, Reason: err} }) {
			l.dead(it, err)
			return
		}
		l.counts.givenBack.Add(1)
	default:
		l.s.settle([]*item{it}, func(it *item) Settlement {
			return Settlement{Verdict: Requeue, After: wait, Attempts: it.attempt}
		})
		l.counts.givenBack.Add(1)
	}
}

// putAside writes a message into the queue Retries, and then settles it with the source.
func (a *atLeast) putAside(l *lane, it *item, e Entry) {
	e.Queue, e.Consumer, e.Message, e.Origin = Retries, l.name, it.Message, l.originOf(it)
	if err := l.persist(l.s, func(ctx context.Context) error { return a.retries().Put(ctx, e) }); err != nil {
		l.returned([]*item{it})
		return
	}
	l.parked(it, Parking{Dead: e.State == Dead, After: e.Due, Attempts: e.Attempts, Reason: e.Reason})
}

// finish says what became of a message that waited.
func (a *atLeast) finish(l *lane, it *item, dead bool, wait time.Duration, why error) {
	o := Outcome{Row: *it.record.Row, Verdict: Ack}
	switch {
	case dead:
		o.Verdict, o.Reason = Reject, why.Error()
	case why != nil:
		o.Verdict, o.After, o.Reason = Requeue, wait, why.Error()
	}
	err := l.persist(l.s, func(ctx context.Context) error { return a.retries().Finish(ctx, o) })
	if err == nil && dead {
		l.dead(it, why)
	}
}

func (a *atLeast) retry(l *lane, it *item) {
	unlock := l.isolation.lock(true)
	n, err := a.retries().Start(l.hard, *it.record.Row)
	away := err != nil
	if err == nil {
		it.attempt = n
		if most := l.cfg.Attempts; most != Unlimited && n > most {
			unlock()
			a.finish(l, it, true, 0, fmt.Errorf("the handler was started %d times with this message and never came to an end", n-1))
			return
		}
		l.counts.retried.Add(1)
		err = l.callUnlocked(it, a.h, a.retries())
	}
	unlock()
	switch {
	case errors.Is(err, ErrLeaseLost):
	case l.hard.Err() != nil:
		l.waitOn(it, 0)
	case away || notEmitted(err):
		l.waitOn(it, pauseMost)
	case err != nil:
		a.fail(l, it, err)
	default:
		a.finish(l, it, false, 0, nil)
		l.counts.resolved(it, &l.counts.processed)
	}
}

// emitError says that the queue could not take what a handler emitted: no fault of the message.
type emitError struct{ err error }

func (e *emitError) Error() string { return "emit: " + e.err.Error() }
func (e *emitError) Unwrap() error { return e.err }

func notEmitted(err error) bool {
	var e *emitError
	return errors.As(err, &e)
}

// callPlain runs a handler without a transaction of ours, and puts what it emitted into q.
func (l *lane) callPlain(it *item, h Handler, q Queue, alone bool) error {
	defer l.isolation.lock(alone)()
	return l.callUnlocked(it, h, q)
}

func (l *lane) callUnlocked(it *item, h Handler, q Queue) error {
	d := l.delivery(it)
	o := l.supervise(func(ctx context.Context, w *watch) outcome {
		return outcome{err: l.call(ctx, w, 0, &d, func(ctx context.Context) error { return h(ctx, &d) })}
	})
	if o.err != nil || len(d.emitted) == 0 {
		return o.err
	}
	if q == nil {
		return Permanent(errors.New("onceward: emitting needs a store: set Config.Queue"))
	}
	es := make([]Entry, len(d.emitted))
	for i, em := range d.emitted {
		es[i] = Entry{Queue: em.queue, Message: em.msg, State: Waiting}
	}
	switch err := q.Put(l.hard, es...); {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrInDoubt), errors.Is(err, ErrConflict):
		return &emitError{err}
	default:
		return err
	}
}
