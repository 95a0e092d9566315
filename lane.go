package onceward

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// lane runs one transaction, or one handler, at a time.
type lane struct {
	*run
	s     *session
	in    chan *item
	size  int // of a batch; adapts
	batch []*item
	aside []asideItem
	recs  []Record
	seen  map[string]int
}

type asideItem struct {
	*item
	due time.Time
}

func newLane(r *run, s *session) *lane {
	return &lane{run: r, s: s, in: make(chan *item, 2*r.cfg.MaxBatch), size: min(firstBatch, r.cfg.MaxBatch), seen: map[string]int{}}
}

// Sizes and times by which a batch adapts.
const (
	firstBatch     = 32
	quickBatch     = 100 * time.Millisecond // grow
	slowBatch      = 500 * time.Millisecond // shrink
	mostBatchBytes = 16 << 20
)

// loop processes what comes in, batch by batch, until the pump closes the channel.
func (l *lane) loop() {
	for {
		batch, ok := l.gather()
		if !ok {
			break
		}
		if l.s.ctx.Err() != nil {
			l.returned(batch)
			continue
		}
		l.work.process(l, batch)
	}
	for len(l.aside) > 0 && l.s.ctx.Err() == nil {
		if batch, ok := l.dueAside(); ok {
			l.work.process(l, batch)
			continue
		}
		l.sleepUntil(l.aside[0].due)
	}
	for _, a := range l.aside {
		l.returned([]*item{a.item})
	}
	l.aside = nil
}

// gather waits for one item and takes what else has come already.
func (l *lane) gather() (batch []*item, ok bool) {
	if batch, ok := l.dueAside(); ok {
		return batch, true
	}
	var due <-chan time.Time
	if len(l.aside) > 0 {
		t := time.NewTimer(time.Until(l.aside[0].due))
		defer t.Stop()
		due = t.C
	}
	l.batch = l.batch[:0]
	select {
	case it, ok := <-l.in:
		if !ok {
			return nil, false
		}
		l.batch = append(l.batch, it)
	case <-due:
		return nil, true
	}
	bytes := len(l.batch[0].Body)
	for len(l.batch) < l.size && bytes < mostBatchBytes {
		select {
		case it, ok := <-l.in:
			if !ok {
				return l.batch, true
			}
			l.batch = append(l.batch, it)
			bytes += len(it.Body)
		default:
			return l.batch, true
		}
	}
	return l.batch, true
}

// dueAside returns the first item that was put aside if its time has come.
func (l *lane) dueAside() ([]*item, bool) {
	if len(l.aside) == 0 || time.Now().Before(l.aside[0].due) {
		return nil, false
	}
	it := l.aside[0].item
	l.aside = l.aside[1:]
	return []*item{it}, true
}

// putAside leaves an item, uncharged, whose twin another transaction holds.
func (l *lane) putAside(it *item, why error) {
	it.asides++
	wait := min(50*time.Millisecond<<min(it.asides, 10), 10*time.Second)
	if l.s == nil {
		l.waitOn(it, wait)
		return
	}
	l.log.Debug("put aside", "id", short(it.ID), "for", wait, "reason", why)
	l.aside = append(l.aside, asideItem{it, time.Now().Add(wait)})
	slices.SortStableFunc(l.aside, func(a, b asideItem) int { return a.due.Compare(b.due) })
}

func (l *lane) sleepUntil(t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.s.ctx.Done():
	}
}

// stopped reports whether nothing more is to be started.
func (l *lane) stopped() bool {
	if l.s != nil {
		return l.s.ctx.Err() != nil
	}
	return l.soft.Err() != nil
}

// cut returns how many of items go into the next batch: at most the lane's size, and no id twice
// with different bodies. The same message twice is its own twin, and claimed once.
func (l *lane) cut(items []*item) int {
	n := min(len(items), l.size)
	if n == 1 {
		items[0].twin = -1
		return 1
	}
	clear(l.seen)
	for i, it := range items[:n] {
		it.twin = -1
		first, again := l.seen[it.record.ID]
		switch {
		case !again:
			l.seen[it.record.ID] = i
		case items[first].record.Fingerprint == it.record.Fingerprint && it.record.Row == nil:
			it.twin = first
		default:
			return i
		}
	}
	return n
}

// done settles items whose effect, or what replaces it, is committed.
func (l *lane) done(items ...*item) {
	if l.s != nil && len(items) > 0 {
		l.s.settle(items, acked)
	}
}

// duplicate counts an item that was dropped.
func (l *lane) duplicate(it *item) {
	l.counts.resolved(it, &l.counts.duplicates)
	l.log.Debug("duplicate dropped", "id", short(it.ID))
	if f := l.cfg.Hooks.Duplicate; f != nil {
		f(l.name, &it.Message)
	}
}

// parked counts and settles an item that was put aside.
func (l *lane) parked(it *item, p Parking) {
	switch {
	case p.Dead:
		l.dead(it, errors.New(p.Reason))
	case !it.waited:
		l.counts.waiting.Add(1)
	}
	if !p.Dead {
		level := slog.LevelInfo
		if p.After == 0 {
			level = slog.LevelDebug // not because it failed
		}
		l.log.Log(l.hard, level, "will be tried again", "id", short(it.ID), "attempts", p.Attempts, "after", p.After, "reason", p.Reason)
	}
	l.done(it)
}

func (l *lane) dead(it *item, reason error) {
	l.counts.resolved(it, &l.counts.dead)
	l.log.Warn("dead letter", "id", short(it.ID), "from", l.originOf(it), "attempts", it.attempt, "reason", reason)
	if f := l.cfg.Hooks.Dead; f != nil {
		f(l.name, &it.Message, reason)
	}
}

// lost leaves an item whose row another consumer has taken over.
func (l *lane) lost(it *item) {
	l.log.Info("its lease was taken over; left to the new owner", "id", short(it.ID))
	if l.s != nil {
		l.counts.givenBack.Add(1)
		l.s.held.add(-int64(len(it.Body)))
	}
}

// originOf tells a person where an item came from.
func (l *lane) originOf(it *item) string {
	if it.origin == "" {
		it.origin = l.source
		if at, ok := it.Receipt.(fmt.Stringer); ok {
			it.origin = at.String()
		} else if it.Position.Log != "" {
			it.origin = it.Position.String()
		}
	}
	return it.origin
}

// backoff is how long to wait before the next attempt.
func (r *run) backoff(attempt int, err error) time.Duration {
	if after, ok := errors.AsType[*retryError](err); ok {
		return max(after.after, 0)
	}
	return max(r.cfg.Backoff(attempt), 0)
}

// jitter is a short wait that grows, and differs between those that collided.
func jitter(n int) time.Duration {
	return rand.N(5 * time.Millisecond << min(n, 8)) //nolint:gosec // jitter needs no secrecy
}

// returned gives items back to the source, or lets them wait on.
func (l *lane) returned(items []*item) {
	if l.s != nil {
		l.counts.givenBack.Add(int64(len(items)))
		l.s.giveBack(items)
		return
	}
	for _, it := range items {
		l.waitOn(it, 0)
	}
}

// adapt sets the size of the next batch after one of n items took so long.
func (l *lane) adapt(n int, took time.Duration) {
	switch {
	case took > slowBatch:
		l.shrink()
	case n >= l.size && took < quickBatch:
		l.size = min(2*l.size, l.cfg.MaxBatch)
	}
}

func (l *lane) shrink() { l.size = max(1, l.size/2) }
