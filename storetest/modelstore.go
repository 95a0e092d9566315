package storetest

import (
	"slices"

	"github.com/onceward/onceward"
)

// model is a store that is easy to believe: what the contract says, in plain Go.
type model struct {
	rows     []*row            // in order of their sequence
	finished map[string]string // consumer+id to body
	counts   map[string]int    // consumer+id
}

type row struct {
	seq, fence                     int64
	queue, consumer, id, body, key string
	state                          onceward.EntryState
	attempts                       int
	later                          bool // not due
}

func newModel() *model {
	return &model{finished: map[string]string{}, counts: map[string]int{}}
}

func (m *model) bySeq(seq int64) *row {
	for _, r := range m.rows {
		if r.seq == seq {
			return r
		}
	}
	return nil
}

func (m *model) keyOf(seq int64) string {
	if r := m.bySeq(seq); r != nil {
		return r.key
	}
	return ""
}

// ours is the row, if the lease holds.
func (m *model) ours(w *onceward.Row) *row {
	if w == nil {
		return nil
	}
	if r := m.bySeq(w.Seq); r != nil && r.state == onceward.InHand && r.fence == w.Fence {
		return r
	}
	return nil
}

func (m *model) remove(r *row) {
	m.rows = slices.DeleteFunc(m.rows, func(x *row) bool { return r != nil && x == r })
}

func (m *model) isParked(c, id, body string, own *onceward.Row) bool {
	return slices.ContainsFunc(m.rows, func(r *row) bool {
		return r.queue == onceward.Retries && r.consumer == c && r.id == id && r.body == body && (own == nil || r.seq != own.Seq)
	})
}

func (m *model) isHeld(c, key string, own *onceward.Row) bool {
	return key != "" && slices.ContainsFunc(m.rows, func(r *row) bool {
		return r.queue == onceward.Retries && r.consumer == c && r.key == key && r.state != onceward.Dead && (own == nil || r.seq < own.Seq)
	})
}

// claim returns what Claim may find.
func (m *model) claim(c string, r onceward.Record, body string) []onceward.Found {
	var want []onceward.Found
	if r.Row != nil && m.ours(r.Row) == nil {
		want = append(want, onceward.Lost)
	}
	was, done := m.finished[c+r.ID]
	parked := m.isParked(c, r.ID, body, r.Row)
	switch {
	case done && (was == body || was == anyBody):
		return append(want, onceward.Duplicate)
	case done && parked:
		return append(want, onceward.OtherBody, onceward.Parked)
	case done:
		return append(want, onceward.OtherBody)
	case parked:
		return append(want, onceward.Parked)
	case m.isHeld(c, r.OrderKey, r.Row):
		return append(want, onceward.Held)
	case want != nil:
		return want
	}
	return []onceward.Found{onceward.Fresh}
}

func (m *model) claimed(c string, r onceward.Record, f onceward.Found) {
	switch f {
	case onceward.Fresh:
		m.finished[c+r.ID] = bodyOf(r)
		if r.Counted {
			delete(m.counts, c+r.ID)
		}
		m.remove(m.ours(r.Row))
	case onceward.Duplicate, onceward.Parked:
		m.remove(m.ours(r.Row))
		if r.Counted {
			delete(m.counts, c+r.ID)
		}
	default: // nothing is recorded, and the row stays
	}
}

// anyBody is what a discarded conflict was finished with.
const anyBody = "any"

func bodyOf(r onceward.Record) string {
	if r.Fingerprint == onceward.Fingerprint([]byte("x")) {
		return "x"
	}
	return "y"
}

// park returns what Park may find.
func (m *model) park(c string, p onceward.Parking) []onceward.Found {
	var want []onceward.Found
	if p.Row != nil && m.ours(p.Row) == nil {
		want = append(want, onceward.Lost)
	}
	body := string(p.Message.Body)
	was, done := m.finished[c+p.ID]
	parked := m.isParked(c, p.ID, body, p.Row)
	switch {
	case done && (was == body || was == anyBody):
		return append(want, onceward.Duplicate)
	case done && parked && !p.Dead:
		return append(want, onceward.Parked, onceward.OtherBody)
	case parked:
		return append(want, onceward.Parked)
	case done && !p.Dead:
		return append(want, onceward.OtherBody)
	case want != nil:
		return want
	case done:
		return []onceward.Found{onceward.OtherBody}
	}
	return []onceward.Found{onceward.Fresh}
}

func (m *model) parked(c string, p onceward.Parking, f onceward.Found) {
	r := m.ours(p.Row)
	switch {
	case f == onceward.Duplicate || f == onceward.Parked:
		m.remove(r)
		if p.Counted {
			delete(m.counts, c+p.ID)
		}
	case f == onceward.Fresh || f == onceward.OtherBody && p.Dead:
		if r == nil {
			r = &row{id: p.Message.ID, body: string(p.Message.Body)}
			m.rows = append(m.rows, r)
		}
		r.queue, r.consumer, r.key, r.attempts = onceward.Retries, c, p.OrderKey, p.Attempts
		r.state, r.later = onceward.Waiting, p.After > 0
		if p.Dead {
			r.state, r.later = onceward.Dead, false
		}
		if p.Counted {
			delete(m.counts, c+p.ID)
		}
	}
}

func (m *model) put(msg *onceward.Message) {
	for _, r := range m.rows {
		if r.queue == "q" && r.id == msg.ID && r.state != onceward.Dead {
			return
		}
	}
	m.rows = append(m.rows, &row{queue: "q", id: msg.ID, body: string(msg.Body), key: msg.Key, state: onceward.Waiting})
}

func (m *model) leasable(p onceward.LeaseParams) []int64 {
	var seqs []int64
	busy := map[string]bool{}
	for _, r := range m.rows {
		if r.queue != p.Queue || r.consumer != p.Consumer || r.state == onceward.Dead {
			continue
		}
		held := p.KeepOrder && r.key != "" && busy[r.key]
		busy[r.key] = true
		if r.state == onceward.Waiting && !r.later && !held {
			seqs = append(seqs, r.seq)
		}
	}
	return seqs
}

func (m *model) leased(l onceward.Leased) {
	r := m.bySeq(l.Seq)
	r.state, r.fence = onceward.InHand, l.Fence
}

func (m *model) finish(o onceward.Outcome) bool {
	r := m.ours(&o.Row)
	if r == nil {
		return false
	}
	switch o.Verdict {
	case onceward.Ack:
		m.remove(r)
	case onceward.Requeue:
		r.state, r.later = onceward.Waiting, o.After > 0
	case onceward.Reject:
		r.state = onceward.Dead
	}
	return true
}

func (m *model) operate(what string, f onceward.Filter) int {
	n := 0
	if what == "forget" {
		if _, ok := m.finished[f.Consumer+f.ID]; ok {
			n = 1
		}
		delete(m.finished, f.Consumer+f.ID)
		delete(m.counts, f.Consumer+f.ID)
		return n
	}
	for _, r := range slices.Clone(m.rows) {
		if r.consumer != f.Consumer || r.id != f.ID || r.state != onceward.Dead {
			continue
		}
		n++
		if what == "replay" {
			r.state, r.attempts, r.later = onceward.Waiting, 0, false
			continue
		}
		m.remove(r)
		if was, ok := m.finished[r.consumer+r.id]; !ok {
			m.finished[r.consumer+r.id] = r.body
		} else if was != r.body {
			m.finished[r.consumer+r.id] = anyBody
		}
	}
	return n
}

func (m *model) attempt(c string, r onceward.Record) (int, bool) {
	if r.Row != nil {
		own := m.ours(r.Row)
		if own == nil {
			return 0, false
		}
		own.attempts++
		return own.attempts, true
	}
	m.counts[c+r.ID]++
	return m.counts[c+r.ID], true
}
