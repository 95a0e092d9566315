package memory

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

// row is a row of a queue.
type row struct {
	seq, fence         int64
	queue, consumer    string
	storedID, orderKey string
	fingerprint        int64
	msg                onceward.Message
	state              onceward.EntryState
	attempts           int
	reason, origin     string
	due                time.Time // waiting: not before; in hand: until then
	seen               time.Time // when Lease last looked at it
	written            time.Time
	redelivered        bool // it was leased before the present lease
	leased             bool // it was leased at some time
}

func (w *row) wait(after time.Duration) {
	w.state, w.due, w.seen = onceward.Waiting, time.Now().Add(max(after, 0)), time.Time{}
}

type queueKey struct{ queue, consumer string }

// queue is the rows of one queue and consumer, in order of seq.
type queue struct{ rows []*row }

func bySeq(w *row, seq int64) int { return cmp.Compare(w.seq, seq) }

// insert puts w where it belongs, and wakes who waits for it.
func (s *Store) insert(w *row) {
	k := queueKey{w.queue, w.consumer}
	q := s.queues[k]
	if q == nil {
		q = &queue{}
		s.queues[k] = q
	}
	i, _ := slices.BinarySearchFunc(q.rows, w.seq, bySeq)
	q.rows = slices.Insert(q.rows, i, w)
	s.bySeq[w.seq] = w
	s.byID[w.storedID] = append(s.byID[w.storedID], w)
	s.arrived(w.queue)
}

// remove takes w, which may be nil, out of the store.
func (s *Store) remove(w *row) {
	if w == nil {
		return
	}
	k := queueKey{w.queue, w.consumer}
	q := s.queues[k]
	i, _ := slices.BinarySearchFunc(q.rows, w.seq, bySeq)
	if i == 0 { // the usual case, and cheap
		q.rows[0] = nil
		q.rows = q.rows[1:]
	} else {
		q.rows = slices.Delete(q.rows, i, i+1)
	}
	if len(q.rows) == 0 {
		delete(s.queues, k)
	}
	delete(s.bySeq, w.seq)
	same := slices.DeleteFunc(s.byID[w.storedID], func(x *row) bool { return x == w })
	if s.byID[w.storedID] = same; len(same) == 0 {
		delete(s.byID, w.storedID)
	}
	s.arrived(w.queue) // under KeepOrder, the next of its key may go
}

// arrived wakes those who wait for a queue.
func (s *Store) arrived(queue string) {
	if ch := s.arrivals[queue]; ch != nil {
		close(ch)
		delete(s.arrivals, queue)
	}
}

// put writes an entry unless its id waits there already.
func (s *Store) put(e *onceward.Entry) {
	w := &row{
		queue: e.Queue, consumer: e.Consumer, storedID: onceward.StoredID(e.Message.ID), orderKey: e.Message.Key,
		fingerprint: onceward.Fingerprint(e.Message.Body), msg: clone(&e.Message), attempts: e.Attempts,
		reason: e.Reason, origin: e.Origin, written: time.Now(),
	}
	if e.Message.ID == "" {
		w.storedID = onceward.AnonymousID()
	}
	for _, x := range s.byID[w.storedID] {
		if x.queue != w.queue || x.consumer != w.consumer {
			continue
		}
		if w.queue == onceward.Retries && x.fingerprint == w.fingerprint || w.queue != onceward.Retries && x.state != onceward.Dead {
			return
		}
	}
	w.wait(e.Due)
	if e.State == onceward.Dead {
		w.state = onceward.Dead
	}
	s.lastSeq++
	w.seq = s.lastSeq
	s.insert(w)
}

// parkedTwin is a parked row other than r.Row with the same consumer, id and fingerprint.
func (s *Store) parkedTwin(consumer string, r *onceward.Record) *row {
	for _, w := range s.byID[r.ID] {
		if w.queue == onceward.Retries && w.consumer == consumer && same(w.fingerprint, r.Fingerprint) && (r.Row == nil || w.seq != r.Row.Seq) {
			return w
		}
	}
	return nil
}

func (s *Store) isParked(consumer, id string) bool {
	return s.parkedTwin(consumer, &onceward.Record{ID: id}) != nil
}

// holdsUp reports whether an earlier row of r's key waits for a retry.
func (s *Store) holdsUp(consumer string, r *onceward.Record) bool {
	q := s.queues[queueKey{onceward.Retries, consumer}]
	if q == nil {
		return false
	}
	for _, w := range q.rows {
		if r.Row != nil && w.seq >= r.Row.Seq {
			return false
		}
		if w.orderKey == r.OrderKey && w.state != onceward.Dead {
			return true
		}
	}
	return false
}

func clone(m *onceward.Message) onceward.Message {
	c := *m
	c.Body = bytes.Clone(m.Body)
	if m.Headers != nil {
		c.Headers = make(onceward.Headers, len(m.Headers))
		for k, v := range m.Headers {
			c.Headers[k] = slices.Clone(v)
		}
	}
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	return c
}

// show is the row as Lease and List return it.
func (w *row) show(now time.Time) onceward.Leased {
	l := onceward.Leased{
		Entry: onceward.Entry{
			Queue: w.queue, Consumer: w.consumer, Message: clone(&w.msg), State: w.state, Attempts: w.attempts,
			Reason: w.reason, Origin: w.origin,
		},
		Row: onceward.Row{Seq: w.seq, Fence: w.fence}, StoredID: w.storedID, Redelivered: w.redelivered, Age: now.Sub(w.written),
	}
	if w.state == onceward.Waiting {
		l.Due = w.due.Sub(now)
	}
	return l
}
