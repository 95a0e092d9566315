package sqlstore

import (
	"context"
	"errors"

	"github.com/onceward/onceward"
)

// Park puts messages aside. See [onceward.Inbox].
func (s *Store) Park(ctx context.Context, consumer string, ps []onceward.Parking) ([]onceward.Found, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	found, err := s.park(ctx, consumer, ps)
	if len(ps) == 1 && errors.Is(err, onceward.ErrBusy) {
		return []onceward.Found{onceward.Busy}, nil
	}
	if !errors.Is(err, onceward.ErrBusy) {
		return found, err
	}
	// One of them is in another transaction's hands: each on its own, to learn which.
	found = nil
	for i := range ps {
		one, err := s.Park(ctx, consumer, ps[i:i+1])
		if err != nil {
			return nil, err
		}
		found = append(found, one...)
	}
	return found, nil
}

func (s *Store) park(ctx context.Context, consumer string, ps []onceward.Parking) ([]onceward.Found, error) {
	found := make([]onceward.Found, len(ps))
	err := s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		for _, part := range apart(ps) {
			p := parker{claim{s: s, tx: t.tx, consumer: []byte(consumer), found: make([]onceward.Found, len(part))}, ps, part}
			if err := p.number(ctx); err != nil {
				return err
			}
			if err := p.park(ctx); err != nil {
				return err
			}
			for k, i := range part {
				found[i] = p.found[k]
			}
		}
		s.appended(t.tx, onceward.Retries)
		return nil
	})
	return found, err
}

// apart splits ps, by index, into parts without two of the same id, so that one of two bodies under
// one id is not taken for a duplicate of the other's claim.
func apart(ps []onceward.Parking) (parts [][]int) {
	seen := map[string]int{}
	for i := range ps {
		n := seen[ps[i].ID]
		seen[ps[i].ID]++
		if n == len(parts) {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], i)
	}
	return parts
}

type parker struct {
	claim
	ps   []onceward.Parking
	part []int
}

func (p *parker) park(ctx context.Context) error {
	for _, i := range p.part {
		r := p.ps[i].Record
		r.OrderKey = "" // parking never waits behind a key
		p.rs = append(p.rs, r)
	}
	if err := p.insert(ctx); err != nil {
		return err
	}
	if err := p.giveBack(ctx); err != nil {
		return err
	}
	for k, i := range p.part {
		if f := p.found[k]; f == onceward.Fresh || f == onceward.OtherBody && p.ps[i].Dead {
			if err := p.write(ctx, &p.ps[i]); err != nil {
				return err
			}
			p.rs[k].Row = nil // it is the parked row now
			if p.ps[i].Counted && f == onceward.OtherBody {
				p.counted = append(p.counted, []byte(p.ps[i].ID))
			}
		}
	}
	return p.tidy(ctx)
}

// giveBack takes the claims back: the inbox holds finished messages only.
func (p *parker) giveBack(ctx context.Context) error {
	var ids []any
	for k, f := range p.found {
		if f == onceward.Fresh {
			ids = append(ids, []byte(p.rs[k].ID))
		}
	}
	_, err := p.s.execIn(ctx, p.tx, p.s.sql.Forget, ids, p.num)
	return err
}

func (p *parker) write(ctx context.Context, a *onceward.Parking) error {
	state, after := onceward.Waiting, millis(a.After)
	if a.Dead {
		state, after = onceward.Dead, 0
	}
	if a.Row != nil {
		_, err := p.s.exec(ctx, p.tx, p.s.sql.ParkRow, p.consumer, []byte(a.ID), a.Fingerprint, anyLength(a.OrderKey), int64(state),
			after, after, a.Attempts, clean(a.Reason), clean(a.Origin), a.Row.Seq, a.Row.Fence)
		return err
	}
	return p.s.write(ctx, p.tx, &row{
		queue: onceward.Retries, consumer: p.consumer, id: a.ID, fp: a.Fingerprint, orderKey: a.OrderKey,
		state: state, after: after, attempts: a.Attempts, reason: a.Reason, origin: a.Origin, msg: &a.Message,
	})
}
