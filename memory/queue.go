package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/storequeue"
)

func check(queue string, m *onceward.Message) error {
	if queue == "" {
		return errors.New("memory: a queue needs a name")
	}
	if m.ID == "" && queue != onceward.Retries {
		return onceward.ErrNoID
	}
	return nil
}

// Append implements [onceward.Appender].
func (s *Store) Append(_ context.Context, tx *Tx, queue string, msgs ...*onceward.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(tx); err != nil {
		return err
	}
	if err := onceward.CheckAppend(queue, msgs...); err != nil {
		return err
	}
	for _, m := range msgs {
		tx.appended = append(tx.appended, onceward.Entry{Queue: queue, Message: clone(m)})
	}
	return nil
}

// Put implements [onceward.Queue].
func (s *Store) Put(ctx context.Context, es ...onceward.Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range es {
		if err := check(es[i].Queue, &es[i].Message); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range es {
		s.put(&es[i])
	}
	return nil
}

// Lease implements [onceward.Queue]. It passes over rows in a transaction's hands.
func (s *Store) Lease(ctx context.Context, p onceward.LeaseParams) ([]onceward.Leased, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.Max <= 0 || p.For <= 0 {
		return nil, fmt.Errorf("memory: Lease of %d rows for %v", p.Max, p.For)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queueKey{p.Queue, p.Consumer}]
	if q == nil {
		return nil, nil
	}
	now := time.Now()
	var ls []onceward.Leased
	keys := map[string]bool{} // of earlier rows
	for _, w := range q.rows {
		if len(ls) == p.Max {
			break
		}
		if w.state == onceward.Dead {
			continue
		}
		w.seen = now
		held := p.KeepOrder && w.orderKey != "" && keys[w.orderKey]
		keys[w.orderKey] = true
		if held || w.due.After(now) || s.locks[lockKey{kind: lockRow, n: w.seq}] != nil {
			continue
		}
		s.lastFence++
		w.fence, w.state, w.due = s.lastFence, onceward.InHand, now.Add(p.For)
		w.redelivered, w.leased = w.leased, true
		ls = append(ls, w.show(now))
	}
	return ls, nil
}

// Finish implements [onceward.Queue].
func (s *Store) Finish(ctx context.Context, os ...onceward.Outcome) error {
	for i := range os {
		if v := os[i].Verdict; v < onceward.Ack || v > onceward.Reject {
			return fmt.Errorf("memory: Finish with verdict %d", v)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var o owner
	defer s.unlock(&o)
	seqs := make([]int64, len(os))
	for i := range os {
		seqs[i] = os[i].Seq
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		if err := s.lock(ctx, &o, lockKey{kind: lockRow, n: seq}); err != nil {
			return err
		}
	}
	var err error
	for i := range os {
		if w := s.ours(nil, &os[i].Row); w != nil {
			s.finish(w, &os[i])
		} else {
			err = onceward.ErrLeaseLost
		}
	}
	return err
}

func (s *Store) finish(w *row, o *onceward.Outcome) {
	if o.Reason != "" {
		w.reason = o.Reason
	}
	switch o.Verdict {
	case onceward.Ack:
		s.remove(w)
	case onceward.Requeue:
		w.wait(o.After)
	case onceward.Reject:
		w.state = onceward.Dead
	}
	s.arrived(w.queue)
}

// Wait implements [onceward.Queue]. It returns at once if a row is due that no Lease has looked at
// since, and at the latest after a second.
func (s *Store) Wait(ctx context.Context, queue string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	wait := s.nextDue(queue)
	ch := s.arrivals[queue]
	if ch == nil {
		ch = make(chan struct{})
		s.arrivals[queue] = ch
	}
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ch:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextDue is how long it takes, at most a second, until a row is due that Lease has not seen so.
func (s *Store) nextDue(queue string) time.Duration {
	now, wait := time.Now(), time.Second
	for k, q := range s.queues {
		if k.queue != queue {
			continue
		}
		for _, w := range q.rows {
			if w.state != onceward.Dead && w.seen.Before(w.due) {
				wait = min(wait, w.due.Sub(now))
			}
		}
	}
	return wait
}

// Queue returns the named queue as a source: what a program puts or appends there, consumers of any
// kind can read. One that uses this store takes the message in its effect's transaction.
func (s *Store) Queue(name string) onceward.StoreQueue { return storequeue.New(s, name) }
