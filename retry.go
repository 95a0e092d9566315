package onceward

import (
	"context"
	"errors"
	"time"
)

// runRetries runs messages that wait, one at a time, as they become due. It stops with the consumer;
// when the source has ended it first runs what is due.
func (r *run) runRetries() {
	q := r.work.retries()
	if q == nil {
		return
	}
	l := newLane(r, nil)
	for r.soft.Err() == nil {
		ran, err := r.retryOne(l, q)
		switch {
		case err != nil:
			if r.recovered(nil, err) != nil {
				return
			}
		case ran:
			continue
		case r.ended.Err() != nil:
			return
		}
		wait, cancel := context.WithTimeout(r.ended, retryPoll)
		_ = q.Wait(wait, Retries) // whatever ends it, the next look decides
		cancel()
		if err != nil && !r.sleep(pauseFirst) {
			return
		}
	}
}

// retryOne leases a row that is due and runs it.
func (r *run) retryOne(l *lane, q Queue) (ran bool, err error) {
	rows, err := q.Lease(r.hard, LeaseParams{
		Queue: Retries, Consumer: r.name, Max: 1, KeepOrder: r.cfg.KeepOrder,
		For: 2*r.cfg.Timeout + time.Minute,
	})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	row := &rows[0]
	it := &item{
		Incoming: Incoming{Message: row.Message, Redelivered: true},
		waited:   true, suspect: true, origin: row.Origin, twin: -1, attempt: row.Attempts + 1,
	}
	r.identifyWaiting(it, row)
	it.record.Row = &row.Row
	r.work.retry(l, it)
	return true, nil
}

// identifyWaiting finds the identity of a row: the one it was put aside with, unless it had none.
func (r *run) identifyWaiting(it *item, row *Leased) {
	if row.Message.ID == "" {
		r.identify(it)
		if it.broken != nil {
			it.record.ID = row.StoredID
		}
		return
	}
	it.record = Record{ID: row.StoredID, Fingerprint: r.fingerprint(it.Body)}
	if r.cfg.KeepOrder {
		it.record.OrderKey = it.Key
	}
}

// waitOn lets a leased row wait on, as if it had not been leased.
func (l *lane) waitOn(it *item, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.hard), closeWait)
	defer cancel()
	err := l.work.retries().Finish(ctx, Outcome{Row: *it.record.Row, Verdict: Requeue, After: after})
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		l.log.Info("a message that waits was not given back; its lease will run out", "id", short(it.ID), "error", err)
	}
}

// runTidy purges what the inbox need not remember any more.
func (r *run) runTidy() {
	every := tidyInterval
	if r.cfg.Retention != Forever {
		every = min(every, max(r.cfg.Retention/10, time.Second))
	}
	for r.sleep(every) {
		if err := r.work.tidy(r.soft); err != nil && r.soft.Err() == nil {
			r.log.Warn("purging the inbox failed; trying again in a while", "error", err)
		}
	}
}
