package memory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

type msgKey struct{ consumer, id string }

type count struct {
	n  int
	at time.Time
}

// ledger is the inbox of one consumer.
type ledger struct {
	records map[string]record
	order   []entered // from the oldest; what is not in records as it says has been removed
	last    int64
}

type record struct {
	fingerprint int64
	at          time.Time
	n           int64
}

type entered struct {
	id string
	n  int64
}

// record writes an inbox record that is not there yet.
func (s *Store) record(k msgKey, fingerprint int64) {
	l := s.inbox[k.consumer]
	if l == nil {
		l = &ledger{records: map[string]record{}}
		s.inbox[k.consumer] = l
	}
	l.last++
	l.records[k.id] = record{fingerprint, time.Now(), l.last}
	l.order = append(l.order, entered{k.id, l.last})
}

func (s *Store) recorded(k msgKey) (record, bool) {
	if l := s.inbox[k.consumer]; l != nil {
		r, ok := l.records[k.id]
		return r, ok
	}
	return record{}, false
}

// Claim implements [onceward.Inbox].
func (s *Store) Claim(ctx context.Context, tx *Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(tx); err != nil {
		return nil, err
	}
	if err := s.lockRecords(ctx, &tx.owner, consumer, rs); err != nil {
		return nil, err
	}
	found := make([]onceward.Found, len(rs))
	for i := range rs {
		found[i] = s.judge(tx, consumer, &rs[i])
	}
	for i := range rs {
		r := &rs[i]
		switch found[i] {
		case onceward.Fresh:
			tx.inbox[msgKey{consumer, r.ID}] = r.Fingerprint
			if r.Counted {
				tx.counts = append(tx.counts, msgKey{consumer, r.ID})
			}
			tx.dropRow(r.Row)
		case onceward.Duplicate, onceward.Parked:
			if r.Counted {
				tx.counts = append(tx.counts, msgKey{consumer, r.ID})
			}
			if s.ours(tx, r.Row) != nil {
				tx.dropRow(r.Row)
			}
		default: // nothing is recorded, and the row stays
		}
	}
	return found, nil
}

func (tx *Tx) dropRow(r *onceward.Row) {
	if r != nil {
		tx.rows[r.Seq] = true
	}
}

// lockRecords locks messages and their rows, always in the same order.
func (s *Store) lockRecords(ctx context.Context, o *owner, consumer string, rs []onceward.Record) error {
	sorted := make([]*onceward.Record, len(rs))
	for i := range rs {
		sorted[i] = &rs[i]
	}
	slices.SortFunc(sorted, func(a, b *onceward.Record) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range sorted {
		if err := s.lock(ctx, o, lockKey{kind: lockMessage, a: consumer, b: r.ID}); err != nil {
			return err
		}
		if r.Row == nil {
			continue
		}
		if err := s.lock(ctx, o, lockKey{kind: lockRow, n: r.Row.Seq}); err != nil {
			return err
		}
	}
	return nil
}

// judge says what there is of a message whose lock is held; tx may be nil.
func (s *Store) judge(tx *Tx, consumer string, r *onceward.Record) onceward.Found {
	k := msgKey{consumer, r.ID}
	rec, done := s.recorded(k)
	if tx != nil && !done {
		rec.fingerprint, done = tx.inbox[k]
	}
	switch {
	case done && same(rec.fingerprint, r.Fingerprint):
		return onceward.Duplicate
	case r.Row != nil && s.ours(tx, r.Row) == nil:
		return onceward.Lost
	case done:
		return onceward.OtherBody
	case s.parkedTwin(consumer, r) != nil:
		return onceward.Parked
	case r.OrderKey != "" && s.holdsUp(consumer, r):
		return onceward.Held
	}
	return onceward.Fresh
}

// same compares fingerprints, 0 being the same as any.
func same(a, b int64) bool { return a == b || a == 0 || b == 0 }

// ours is the row that r names, if it is still leased with r's fence.
func (s *Store) ours(tx *Tx, r *onceward.Row) *row {
	if r == nil || tx != nil && tx.rows[r.Seq] {
		return nil
	}
	if w := s.bySeq[r.Seq]; w != nil && w.state == onceward.InHand && w.fence == r.Fence {
		return w
	}
	return nil
}

// Park implements [onceward.Inbox]. It does not wait for a message in another transaction's hands.
func (s *Store) Park(ctx context.Context, consumer string, ps []onceward.Parking) ([]onceward.Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]onceward.Found, len(ps))
	for i := range ps {
		found[i] = s.park(consumer, &ps[i])
	}
	return found, nil
}

func (s *Store) park(consumer string, p *onceward.Parking) onceward.Found {
	if s.locks[lockKey{kind: lockMessage, a: consumer, b: p.ID}] != nil {
		return onceward.Busy
	}
	if p.Row != nil && s.locks[lockKey{kind: lockRow, n: p.Row.Seq}] != nil {
		return onceward.Busy
	}
	r := p.Record
	r.OrderKey = "" // what is parked is never held
	found := s.judge(nil, consumer, &r)
	if found == onceward.OtherBody && s.parkedTwin(consumer, &r) != nil {
		found = onceward.Parked
	}
	switch {
	case found == onceward.Duplicate || found == onceward.Parked:
		s.remove(s.ours(nil, p.Row))
		if p.Counted {
			delete(s.counts, msgKey{consumer, p.ID})
		}
	case found == onceward.Fresh || found == onceward.OtherBody && p.Dead:
		s.putAside(consumer, p)
	}
	return found
}

func (s *Store) putAside(consumer string, p *onceward.Parking) {
	w := s.ours(nil, p.Row)
	if w == nil {
		s.lastSeq++
		w = &row{seq: s.lastSeq, written: time.Now(), msg: clone(&p.Message)}
	} else {
		s.remove(w)
	}
	w.queue, w.consumer, w.storedID, w.fingerprint, w.orderKey = onceward.Retries, consumer, p.ID, p.Fingerprint, p.OrderKey
	w.attempts, w.reason, w.origin = p.Attempts, p.Reason, p.Origin
	w.wait(p.After)
	if p.Dead {
		w.state = onceward.Dead
	}
	s.insert(w)
	if p.Counted {
		delete(s.counts, msgKey{consumer, p.ID})
	}
}

// Attempt implements [onceward.Inbox].
func (s *Store) Attempt(ctx context.Context, consumer string, r onceward.Record) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := msgKey{consumer, r.ID}
	c := count{s.counts[k].n + 1, time.Now()}
	s.counts[k] = c
	return c.n, nil
}

// Start implements [onceward.Queue].
func (s *Store) Start(ctx context.Context, row onceward.Row) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var o owner
	defer s.unlock(&o)
	if err := s.lock(ctx, &o, lockKey{kind: lockRow, n: row.Seq}); err != nil {
		return 0, err
	}
	w := s.ours(nil, &row)
	if w == nil {
		return 0, onceward.ErrLeaseLost
	}
	w.attempts++
	return w.attempts, nil
}

// Recorded implements [onceward.Inbox].
func (s *Store) Recorded(ctx context.Context, consumer string, rs []onceward.Record) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]bool, len(rs))
	for i := range rs {
		_, found[i] = s.recorded(msgKey{consumer, rs[i].ID})
	}
	return found, ctx.Err()
}

// Known implements [onceward.Inbox].
func (s *Store) Known(ctx context.Context, consumer string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.inbox[consumer]
	return l != nil && len(l.records) > 0, ctx.Err()
}

// Purge implements [onceward.Inbox]. It looks at old records only.
func (s *Store) Purge(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if keep < onceward.Forever || limit <= 0 {
		return 0, errors.New("memory: Purge needs a limit, and how long to keep")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, horizon := 0, time.Now().Add(-onceward.KeepCounts)
	if keep != onceward.Forever {
		horizon = time.Now().Add(-keep)
		n = s.purgeRecords(consumer, horizon, limit)
	}
	for k, c := range s.counts {
		if n < limit && k.consumer == consumer && c.at.Before(horizon) {
			delete(s.counts, k)
			n++
		}
	}
	return n, nil
}

func (s *Store) purgeRecords(consumer string, horizon time.Time, limit int) int {
	l := s.inbox[consumer]
	if l == nil {
		return 0
	}
	n, looked := 0, 0
	var kept []entered
	for ; looked < len(l.order) && n < limit; looked++ {
		o := l.order[looked]
		r, ok := l.records[o.id]
		if !ok || r.n != o.n {
			continue
		}
		if !r.at.Before(horizon) {
			break
		}
		if s.isParked(consumer, o.id) {
			kept = append(kept, o)
			continue
		}
		delete(l.records, o.id)
		n++
	}
	l.order = append(kept, l.order[looked:]...)
	return n
}
