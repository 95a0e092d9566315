package onceward

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// effectively is EffectivelyOnce: begin → claim + handle + emit → commit → settle.
type effectively[TTx any] struct {
	c       *Consumer
	store   Store[TTx]
	one     TxHandler[TTx]
	many    TxBatchHandler[TTx]
	ownRows bool // the source is a queue of the store: its rows go with the effect
}

func (e *effectively[TTx]) ready(ctx context.Context) error { return e.store.Ready(ctx) }
func (e *effectively[TTx]) retries() Queue                  { return e.store }
func (e *effectively[TTx]) known(ctx context.Context) (bool, error) {
	return e.store.Known(ctx, e.c.name)
}

const purgeLimit = 1000

func (e *effectively[TTx]) tidy(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := e.store.Purge(ctx, e.c.name, e.c.cfg.Retention, purgeLimit)
		if err != nil || n < purgeLimit {
			return err
		}
	}
	return nil
}

func (e *effectively[TTx]) process(l *lane, items []*item) {
	fit := items[:0]
	for _, it := range items {
		switch {
		case it.skip:
			l.counts.skipped.Add(1)
			l.done(it)
			continue
		case e.ownRows:
			it.record.Row = it.Row
		}
		if it.broken != nil {
			e.park(l, it, parking(l, it, true, 0, it.broken))
			continue
		}
		if it.parking != nil {
			e.park(l, it, *it.parking)
			continue
		}
		fit = append(fit, it)
	}
	e.acquit(l, fit)
	for len(fit) > 0 {
		n := 0
		for n < len(fit) && !fit[n].suspect {
			n++
		}
		alone := n == 0
		n = max(n, 1)
		e.group(l, fit[:n], alone)
		fit = fit[n:]
	}
}

// acquit clears the suspicion of items that came late enough, and of those whose handler will not be
// started, so that no start is counted for them: what is finished already, or put aside. It only
// chooses how items run: what they are is for the claim to say.
func (e *effectively[TTx]) acquit(l *lane, items []*item) {
	var suspects []*item
	var recs []Record
	for _, it := range items {
		if it.suspect && !it.Redelivered && !l.suspects.next() {
			it.suspect = false
		}
		if it.suspect {
			suspects, recs = append(suspects, it), append(recs, it.record)
		}
	}
	if len(suspects) == 0 {
		return
	}
	recorded, err := e.store.Recorded(l.hard, l.name, recs)
	if err != nil {
		return // they stay suspects; what ails the store will show
	}
	var left []*item
	seen := map[string]bool{} // of two with one id the later stays a suspect, for one claim can't have both
	for i, it := range suspects {
		it.suspect = !recorded[i]
		if it.suspect && !seen[it.record.ID] {
			seen[it.record.ID] = true
			left = append(left, it)
		}
	}
	e.tryClaims(l, left)
}

var errTried = errors.New("onceward: only to see what a claim would find")

// tryClaims claims suspects, and gives the claims back: only what would be fresh stays suspect.
func (e *effectively[TTx]) tryClaims(l *lane, suspects []*item) {
	if len(suspects) == 0 {
		return
	}
	recs := make([]Record, len(suspects))
	for i, it := range suspects {
		recs[i] = it.record
	}
	var found []Found
	err := e.store.InTx(l.hard, func(ctx context.Context, tx TTx) (err error) {
		if found, err = e.store.Claim(ctx, tx, l.name, recs); err != nil {
			return err
		}
		return errTried
	})
	if !errors.Is(err, errTried) {
		return // they stay suspects, as before
	}
	for i, it := range suspects {
		it.suspect = found[i] == Fresh
	}
}

func (e *effectively[TTx]) retry(l *lane, it *item) {
	if it.broken != nil {
		e.park(l, it, parking(l, it, true, 0, it.broken))
		return
	}
	e.group(l, []*item{it}, true)
}

// group lets items take effect, as many together as the lane's size says. What fails is rolled back
// and tried without the one to blame, so that each handler that succeeds runs at most twice.
func (e *effectively[TTx]) group(l *lane, items []*item, alone bool) {
	for len(items) > 0 {
		if l.stopped() {
			l.returned(items)
			return
		}
		part := items[:l.cut(items)]
		started := time.Now()
		o := e.apply(l, part, alone)
		if o.err != nil {
			items = e.failed(l, items, part, o, alone)
			continue
		}
		took := time.Since(started)
		l.adapt(len(part), took)
		e.committed(l, part, o.found, took)
		items = items[len(part):]
	}
}

// apply runs one transaction.
func (e *effectively[TTx]) apply(l *lane, part []*item, alone bool) outcome {
	defer l.isolation.lock(alone)()
	if alone {
		if o := e.count(l, part[0]); o.err != nil || o.found != nil {
			return o
		}
	}
	o := l.supervise(func(ctx context.Context, w *watch) outcome { return e.transact(ctx, l, w, part) })
	if e.many != nil && len(part) > 1 && (errors.Is(o.err, errAbandoned) || errors.Is(o.err, errGoexit)) {
		o.blamed = -1
	}
	return o
}

// count counts the start of the handler durably, before it.
func (e *effectively[TTx]) count(l *lane, it *item) outcome {
	if it.record.Counted {
		return outcome{} // a start that was rolled back through no fault of the message
	}
	var n int
	var err error
	if row := it.record.Row; row != nil {
		n, err = e.store.Start(l.hard, *row)
	} else {
		n, err = e.store.Attempt(l.hard, l.name, it.record)
	}
	if errors.Is(err, ErrLeaseLost) {
		return outcome{found: []Found{Lost}, blamed: -1}
	}
	if errors.Is(err, ErrInDoubt) { // it is the count that is in doubt, and no commit
		err = fmt.Errorf("%w: counting a start: %s", ErrUnavailable, err.Error())
	}
	if err != nil {
		return outcome{err: err, blamed: -1}
	}
	it.record.Counted = true
	it.attempt = n
	if !it.Redelivered && !it.waited {
		l.suspects.met()
	}
	if most := l.cfg.Attempts; most != Unlimited && n > most {
		it.attempt = n - 1
		return outcome{err: Permanent(fmt.Errorf("the handler was started %d times with this message and never came to an end", n-1))}
	}
	return outcome{}
}

// transact is the heart of it: claim, handle, emit, commit.
func (e *effectively[TTx]) transact(ctx context.Context, l *lane, w *watch, part []*item) outcome {
	o := outcome{blamed: -1, found: make([]Found, len(part))}
	step := len(part)
	if !e.store.Guarded() && e.many == nil {
		step = 1 // or a handler that commits would commit the claims of those that come after it
	}
	o.err = e.store.InTx(ctx, func(ctx context.Context, tx TTx) error {
		var out emits
		for from := 0; from < len(part); from += step {
			to := min(from+step, len(part))
			if err := e.claim(ctx, tx, l, part[from:to], o.found[from:to]); err != nil {
				return err
			}
			if err := e.handle(ctx, tx, l, w, part, from, to, &o, &out); err != nil {
				return err
			}
		}
		for _, q := range out {
			if err := e.store.Append(ctx, tx, q.queue, q.msgs...); err != nil {
				return fmt.Errorf("emit into queue %s: %w", Quote(q.queue), err)
			}
		}
		return nil
	})
	return o
}

func (e *effectively[TTx]) claim(ctx context.Context, tx TTx, l *lane, part []*item, found []Found) error {
	recs := l.recs[:0]
	for _, it := range part {
		if it.twin < 0 {
			recs = append(recs, it.record)
		}
	}
	l.recs = recs
	if len(recs) == 0 {
		return nil
	}
	got, err := e.store.Claim(ctx, tx, l.name, recs)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	n := 0
	for i, it := range part {
		if it.twin < 0 {
			found[i] = got[n]
			n++
		}
	}
	return nil
}

// handle runs the handler for the fresh ones of part[from:to].
func (e *effectively[TTx]) handle(ctx context.Context, tx TTx, l *lane, w *watch, part []*item, from, to int, o *outcome, out *emits) error {
	ds := make([]Delivery, 0, to-from)
	var fresh []int
	for i := from; i < to; i++ {
		if o.found[i] == Fresh {
			ds, fresh = append(ds, l.delivery(part[i])), append(fresh, i)
		}
	}
	if len(ds) == 0 {
		return nil
	}
	if e.many != nil {
		return e.handleMany(ctx, tx, l, w, ds, fresh, o, out)
	}
	for n, i := range fresh {
		o.ran = i + 1
		if part[i].waited {
			l.counts.retried.Add(1)
		}
		err := l.call(ctx, w, i, &ds[n], func(ctx context.Context) error { return e.one(ctx, tx, &ds[n]) })
		if err != nil {
			o.blamed = i
			return err
		}
		out.add(&ds[n])
	}
	return nil
}

func (e *effectively[TTx]) handleMany(ctx context.Context, tx TTx, l *lane, w *watch, ds []Delivery, fresh []int, o *outcome, out *emits) error {
	ps := make([]*Delivery, len(ds))
	for i := range ds {
		ps[i] = &ds[i]
	}
	o.ran = fresh[len(fresh)-1] + 1
	err := l.call(ctx, w, fresh[0], &ds[0], func(ctx context.Context) error { return e.many(ctx, tx, ps) })
	for n := range ds {
		switch d := &ds[n]; {
		case d.failure != nil:
			o.blamed = fresh[n]
			return d.failure
		case err == nil && d.emitErr != nil:
			o.blamed = fresh[n]
			return d.emitErr
		}
		out.add(&ds[n])
	}
	if err != nil && len(ds) == 1 {
		o.blamed = fresh[0]
	}
	return err
}

// emits are the messages to append, by queue, in the order in which the queues were first used.
type emits []queued

type queued struct {
	queue string
	msgs  []*Message
}

func (q *emits) add(d *Delivery) {
next:
	for i := range d.emitted {
		em := &d.emitted[i]
		for j := range *q {
			if (*q)[j].queue == em.queue {
				(*q)[j].msgs = append((*q)[j].msgs, &em.msg)
				continue next
			}
		}
		*q = append(*q, queued{em.queue, []*Message{&em.msg}})
	}
}

// committed counts and settles what a committed transaction has found.
func (e *effectively[TTx]) committed(l *lane, part []*item, found []Found, took time.Duration) {
	settled := make([]*item, 0, len(part))
	var held, other []*item
	fresh := 0
	for i, it := range part {
		switch verdict(it, i, found) {
		case Fresh:
			if found[i] == Fresh {
				fresh++
			}
			l.counts.resolved(it, &l.counts.processed)
			settled = append(settled, it)
		case Duplicate:
			l.duplicate(it)
			settled = append(settled, it)
		case OtherBody:
			other = append(other, it)
		case Held:
			held = append(held, it)
		default:
			l.lost(it)
		}
	}
	if f := l.cfg.Hooks.Committed; f != nil && fresh > 0 {
		f(l.name, fresh, took)
	}
	l.done(settled...)
	for _, it := range other {
		e.park(l, it, parking(l, it, true, 0, errOtherBody))
	}
	for i, it := range held {
		if !e.park(l, it, parking(l, it, false, 0, errHeld)) {
			l.returned(held[i+1:]) // or they would overtake it
			break
		}
	}
}

// verdict is what was found of part[i] = it: a twin has been a duplicate of the first one, and what was
// in doubt, and is finished now, was finished by this consumer.
func verdict(it *item, i int, found []Found) Found {
	f := found[i]
	if it.twin >= 0 {
		f = found[it.twin]
		if f == Fresh {
			f = Duplicate
		}
	}
	switch {
	case it.inDoubt && it.twin < 0 && (f == Duplicate || f == Lost):
		return Fresh
	case f == Parked:
		return Duplicate
	}
	return f
}

var (
	errOtherBody = errors.New("the same id was finished before with another body")
	errHeld      = errors.New("an earlier message of the same key waits")
)

// failed decides how to go on after a transaction that did not commit, and returns what is still to
// be processed.
func (e *effectively[TTx]) failed(l *lane, items, part []*item, o outcome, alone bool) []*item {
	n := len(part)
	if errors.Is(o.err, errAbandoned) || errors.Is(o.err, errNoAnswer) {
		l.recs = nil // the abandoned goroutine may still read it
	}
	switch {
	case l.hard.Err() != nil:
		l.returned(items)
		return nil
	case errors.Is(o.err, ErrTxEscaped):
		l.halt(fmt.Errorf("onceward: consumer %s: handler of message %s: %w", Quote(l.name), Quote(part[max(o.ran, 1)-1].ID), o.err))
		l.returned(items)
		return nil
	case errors.Is(o.err, ErrInDoubt) && o.blamed < 0: // a handler's own doubts are not the commit's
		return e.inDoubt(l, items, part, o)
	case errors.Is(o.err, ErrConflict), errors.Is(o.err, ErrBusy):
		return e.conflicted(l, items, part, o)
	case errors.Is(o.err, ErrUnavailable):
		return e.unavailable(l, items, part, o)
	case o.blamed >= 0 && !errors.Is(o.err, ErrTxEnded):
		e.group(l, part[:o.blamed], alone)
		if l.cfg.KeepOrder && l.stopped() {
			l.returned(items[o.blamed:]) // those before it may have been given back, and must not be overtaken
			return nil
		}
		e.fail(l, part[o.blamed], o.err)
		return items[o.blamed+1:]
	case n > 1: // the guilty one shows when the batch is halved
		e.group(l, part[:n/2], alone)
		e.group(l, part[n/2:], alone)
	default:
		e.fail(l, part[0], o.err)
	}
	return items[n:]
}

// inDoubt resolves an unknown commit by claiming again.
func (e *effectively[TTx]) inDoubt(l *lane, items, part []*item, o outcome) []*item {
	l.log.Warn("the outcome of a commit is unknown; claiming again", "messages", len(part), "error", o.err)
	for i, it := range part {
		it.inDoubt = it.inDoubt || o.found == nil || o.found[i] == Fresh
	}
	if l.recovered(l.s, o.err) != nil || !l.sleep(pauseFirst) {
		l.returned(items)
		return nil
	}
	return items
}

const mostConflicts = 8

// conflicted makes batches smaller, and leaves alone a message that others hold. A handler whose own
// statements conflict again and again, with nobody else in its batch, has failed: it may use another
// connection, which waits for the transaction that the handler was given.
func (e *effectively[TTx]) conflicted(l *lane, items, part []*item, o outcome) []*item {
	err := o.err
	if len(part) > 1 {
		l.size = len(part)
		l.shrink()
		return items
	}
	it := part[0]
	it.conflicts++
	if it.conflicts%3 == 0 && l.recovered(l.s, err) != nil {
		l.returned(items)
		return nil
	}
	switch {
	case o.blamed >= 0 && it.conflicts >= mostConflicts: // whatever conflicts, it is not a passing twin
		e.fail(l, it, err)
		return items[1:]
	case o.blamed < 0 && (errors.Is(err, ErrBusy) || it.conflicts >= mostConflicts) && !l.cfg.KeepOrder:
		it.conflicts = 0
		l.putAside(it, err)
		return items[1:]
	}
	l.sleep(jitter(it.conflicts))
	return items
}

const mostOutages = 3

// unavailable waits for the store. A message that was running alone at the start of three outages in
// a row is the likely cause, and is charged.
func (e *effectively[TTx]) unavailable(l *lane, items, part []*item, o outcome) []*item {
	if it := part[0]; len(part) == 1 && o.ran > 0 {
		if it.outages++; it.outages >= mostOutages {
			e.fail(l, it, o.err)
			return items[1:]
		}
	}
	l.size = 1
	if l.recovered(l.s, o.err) != nil || !l.sleep(pauseFirst) {
		l.returned(items)
		return nil
	}
	return items
}

// fail charges an attempt: the message waits for the next one, or is a dead letter.
func (e *effectively[TTx]) fail(l *lane, it *item, err error) {
	dead := IsPermanent(err) || l.cfg.Attempts != Unlimited && it.attempt >= l.cfg.Attempts
	p := parking(l, it, dead, l.backoff(it.attempt, err), err)
	p.Attempts = it.attempt
	e.park(l, it, p)
}

// parking describes a message to put aside whose handler was not started this time.
func parking(l *lane, it *item, dead bool, after time.Duration, reason error) Parking {
	return Parking{
		Record: it.record, Message: it.Message, Dead: dead, After: after,
		Attempts: it.attempt - 1, Reason: reason.Error(), Origin: l.originOf(it),
	}
}

// park puts a message aside in the store, settles it there, and only then with the source. It reports
// false if it gave up, for the consumer stops or pauses, and gave the message back.
func (e *effectively[TTx]) park(l *lane, it *item, p Parking) bool {
	found := Lost
	err := l.persist(l.s, func(ctx context.Context) error {
		fs, err := e.store.Park(ctx, l.name, []Parking{p})
		if err == nil {
			found = fs[0]
		}
		return err
	})
	switch {
	case err != nil && !errors.Is(err, ErrLeaseLost):
		l.returned([]*item{it})
		return false
	case found == Fresh || found == OtherBody && p.Dead:
		l.parked(it, p)
	case found == Duplicate || found == Parked:
		l.duplicate(it)
		l.done(it)
	case found == OtherBody:
		p.Dead, p.Reason = true, errOtherBody.Error()
		return e.park(l, it, p)
	case found == Busy: // perhaps in those of our own transaction, abandoned and not yet rolled back
		it.parking = &p
		l.putAside(it, ErrBusy)
	default:
		l.lost(it)
	}
	return true
}
