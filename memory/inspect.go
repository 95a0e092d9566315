package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

// Stats implements [onceward.Inspector].
func (s *Store) Stats(ctx context.Context) ([]onceward.QueueStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var stats []onceward.QueueStats
	for k, q := range s.queues {
		st := onceward.QueueStats{Queue: k.queue, Consumer: k.consumer}
		for _, w := range q.rows {
			switch w.state {
			case onceward.Waiting:
				st.Waiting++
			case onceward.InHand:
				st.InHand++
			case onceward.Dead:
				st.Dead++
				continue
			}
			st.Oldest = max(st.Oldest, now.Sub(w.written))
		}
		stats = append(stats, st)
	}
	slices.SortFunc(stats, func(a, b onceward.QueueStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Consumer, b.Consumer))
	})
	return stats, ctx.Err()
}

// List implements [onceward.Inspector].
func (s *Store) List(ctx context.Context, f onceward.Filter) ([]onceward.Leased, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Limit <= 0 {
		f.Limit = 100
	}
	now := time.Now()
	var ls []onceward.Leased
	for _, w := range s.selectRows(&f) {
		ls = append(ls, w.show(now))
	}
	return ls, ctx.Err()
}

// selectRows returns the rows that f selects, in order of seq.
func (s *Store) selectRows(f *onceward.Filter) []*row {
	var ws []*row
	for _, q := range s.queues {
		for _, w := range q.rows {
			if matches(f, w) {
				ws = append(ws, w)
			}
		}
	}
	slices.SortFunc(ws, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	if f.Limit > 0 && len(ws) > f.Limit {
		ws = ws[:f.Limit]
	}
	return ws
}

func matches(f *onceward.Filter, w *row) bool {
	return (f.Queue == "" || f.Queue == w.queue) &&
		(f.Consumer == "" || f.Consumer == w.consumer) &&
		(f.ID == "" || f.ID == w.msg.ID) &&
		(f.State == 0 || f.State == w.state) &&
		(len(f.Seqs) == 0 || slices.Contains(f.Seqs, w.seq)) &&
		w.seq > f.After && strings.Contains(w.reason, f.Reason)
}

// dead returns the dead rows that f selects.
func (s *Store) dead(f onceward.Filter) ([]*row, error) {
	if f.Empty() {
		return nil, onceward.ErrNoFilter
	}
	if f.State != 0 && f.State != onceward.Dead {
		return nil, nil
	}
	f.State = onceward.Dead
	return s.selectRows(&f), nil
}

// Replay implements [onceward.Inspector].
func (s *Store) Replay(ctx context.Context, f onceward.Filter) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ws, err := s.dead(f)
	for _, w := range ws {
		w.attempts = 0
		w.wait(0)
		s.arrived(w.queue)
	}
	return len(ws), err
}

// Discard implements [onceward.Inspector].
func (s *Store) Discard(ctx context.Context, f onceward.Filter) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ws, err := s.dead(f)
	if err != nil {
		return 0, err
	}
	var o owner
	defer s.unlock(&o)
	n := 0
	for _, w := range ws {
		k := msgKey{w.consumer, w.storedID}
		if w.consumer != "" {
			if err := s.lock(ctx, &o, lockKey{kind: lockMessage, a: k.consumer, b: k.id}); err != nil {
				return n, err
			}
		}
		if s.bySeq[w.seq] != w || w.state != onceward.Dead {
			continue // while it waited for the lock
		}
		if w.consumer != "" {
			s.discarded(k, w.fingerprint)
		}
		s.remove(w)
		n++
	}
	return n, nil
}

// discarded records a message as finished, whatever body it was finished with before.
func (s *Store) discarded(k msgKey, fingerprint int64) {
	r, ok := s.recorded(k)
	switch {
	case !ok:
		s.record(k, fingerprint)
	case !same(r.fingerprint, fingerprint):
		r.fingerprint = 0
		s.inbox[k.consumer].records[k.id] = r
	}
}

// Explain implements [onceward.Inspector].
func (s *Store) Explain(ctx context.Context, id string) ([]onceward.Trace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, children := onceward.StoredID(id), id+"#"
	var ts []onceward.Trace
	add := func(emitted bool, t onceward.Trace) {
		if emitted {
			t.What = "emitted, " + t.What
		}
		ts = append(ts, t)
	}
	for consumer, l := range s.inbox {
		if r, ok := l.records[stored]; ok {
			add(false, onceward.Trace{What: "finished", Consumer: consumer, ID: id, At: r.at})
		}
		for k, r := range l.records {
			if child, ok := onceward.LiteralID(k); ok && strings.HasPrefix(child, children) {
				add(true, onceward.Trace{What: "finished", Consumer: consumer, ID: child, At: r.at})
			}
		}
	}
	for _, w := range s.bySeq {
		emitted := strings.HasPrefix(w.msg.ID, children)
		if emitted || w.msg.ID == id {
			add(emitted, onceward.Trace{What: w.state.String(), Queue: w.queue, Consumer: w.consumer, ID: w.msg.ID, At: w.written, Reason: w.reason})
		}
	}
	slices.SortFunc(ts, func(a, b onceward.Trace) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Queue, b.Queue))
	})
	return ts, ctx.Err()
}

// Forget implements [onceward.Inspector].
func (s *Store) Forget(ctx context.Context, consumer string, ids ...string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o owner
	defer s.unlock(&o)
	stored := make([]string, len(ids))
	for i, id := range ids {
		stored[i] = onceward.StoredID(id)
	}
	slices.Sort(stored)
	for _, id := range stored {
		if err := s.lock(ctx, &o, lockKey{kind: lockMessage, a: consumer, b: id}); err != nil {
			return 0, err
		}
	}
	n := 0
	for _, id := range stored {
		if _, ok := s.recorded(msgKey{consumer, id}); ok {
			delete(s.inbox[consumer].records, id)
			n++
		}
		delete(s.counts, msgKey{consumer, id})
	}
	return n, nil
}
