package crash

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward"
)

// Store wraps a store. What operators use passes through without a step.
func Store[TTx any](inner onceward.Store[TTx], s Step) onceward.Store[TTx] {
	return &store[TTx]{inner, s}
}

type store[TTx any] struct {
	onceward.Store[TTx]
	step Step
}

func ofRecords(rs []onceward.Record) string {
	return names(rs, func(r onceward.Record) string { return readable(r.ID) })
}

// readable is an id as a step names it.
func readable(stored string) string {
	if id, ok := onceward.LiteralID(stored); ok {
		return id
	}
	return strconv.Quote(stored)
}

func (c *store[TTx]) InTx(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	if err := c.step(ctx, "begin"+Before); err != nil {
		return err
	}
	err := c.Store.InTx(ctx, func(ctx context.Context, tx TTx) error {
		if err := c.step(ctx, "begin"+After); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return c.step(ctx, "commit"+Before)
	})
	if err != nil {
		return errors.Join(c.step(ctx, "rollback"+After), err)
	}
	return c.step(ctx, "commit"+After)
}

func (c *store[TTx]) Ready(ctx context.Context) error {
	return c.step.around(ctx, "ready", "", func() error { return c.Store.Ready(ctx) })
}

func (c *store[TTx]) Claim(ctx context.Context, tx TTx, consumer string, rs []onceward.Record) (found []onceward.Found, err error) {
	err = c.step.around(ctx, "claim", ofRecords(rs), func() (err error) {
		found, err = c.Store.Claim(ctx, tx, consumer, rs)
		return err
	})
	return found, err
}

func (c *store[TTx]) Park(ctx context.Context, consumer string, ps []onceward.Parking) (found []onceward.Found, err error) {
	about := names(ps, func(p onceward.Parking) string { return readable(p.ID) })
	err = c.step.around(ctx, "park", about, func() (err error) {
		found, err = c.Store.Park(ctx, consumer, ps)
		return err
	})
	return found, err
}

func (c *store[TTx]) Attempt(ctx context.Context, consumer string, r onceward.Record) (n int, err error) {
	err = c.step.around(ctx, "attempt", readable(r.ID), func() (err error) {
		n, err = c.Store.Attempt(ctx, consumer, r)
		return err
	})
	return n, err
}

func (c *store[TTx]) Recorded(ctx context.Context, consumer string, rs []onceward.Record) (known []bool, err error) {
	err = c.step.around(ctx, "recorded", ofRecords(rs), func() (err error) {
		known, err = c.Store.Recorded(ctx, consumer, rs)
		return err
	})
	return known, err
}

func (c *store[TTx]) Known(ctx context.Context, consumer string) (known bool, err error) {
	err = c.step.around(ctx, "known", "", func() (err error) {
		known, err = c.Store.Known(ctx, consumer)
		return err
	})
	return known, err
}

func (c *store[TTx]) Purge(ctx context.Context, consumer string, keep time.Duration, limit int) (n int, err error) {
	err = c.step.around(ctx, "purge", "", func() (err error) {
		n, err = c.Store.Purge(ctx, consumer, keep, limit)
		return err
	})
	return n, err
}

func (c *store[TTx]) Append(ctx context.Context, tx TTx, queue string, msgs ...*onceward.Message) error {
	about := queue + " " + names(msgs, func(m *onceward.Message) string { return m.ID })
	return c.step.around(ctx, "append", about, func() error { return c.Store.Append(ctx, tx, queue, msgs...) })
}

func (c *store[TTx]) TakeOver(ctx context.Context, consumer string, ps []onceward.Position) (got []onceward.Position, err error) {
	err = c.step.around(ctx, "takeover", "", func() (err error) {
		got, err = c.Store.TakeOver(ctx, consumer, ps)
		return err
	})
	return got, err
}

func (c *store[TTx]) Advance(ctx context.Context, tx TTx, consumer string, ps []onceward.Position) error {
	return c.step.around(ctx, "advance", "", func() error { return c.Store.Advance(ctx, tx, consumer, ps) })
}

func (c *store[TTx]) Put(ctx context.Context, es ...onceward.Entry) error {
	about := names(es, func(e onceward.Entry) string { return e.Message.ID })
	return c.step.around(ctx, "put", about, func() error { return c.Store.Put(ctx, es...) })
}

// Lease has its second point if it has leased something. See [Idle].
func (c *store[TTx]) Lease(ctx context.Context, p onceward.LeaseParams) ([]onceward.Leased, error) {
	if err := c.step(ctx, "lease"+Before+" "+p.Queue); err != nil {
		return nil, err
	}
	ls, err := c.Store.Lease(ctx, p)
	if err != nil || len(ls) == 0 {
		return ls, err
	}
	about := names(ls, func(l onceward.Leased) string { return l.Message.ID })
	if err := c.step(ctx, "lease"+After+" "+about); err != nil {
		return nil, err
	}
	return ls, nil
}

func (c *store[TTx]) Start(ctx context.Context, row onceward.Row) (n int, err error) {
	err = c.step.around(ctx, "start", strconv.FormatInt(row.Seq, 10), func() (err error) {
		n, err = c.Store.Start(ctx, row)
		return err
	})
	return n, err
}

func (c *store[TTx]) Finish(ctx context.Context, os ...onceward.Outcome) error {
	os = slices.SortedFunc(slices.Values(os), func(a, b onceward.Outcome) int { return cmp.Compare(a.Seq, b.Seq) })
	about := names(os, func(o onceward.Outcome) string { return verdict(o.Verdict) + strconv.FormatInt(o.Seq, 10) })
	return c.step.around(ctx, "finish", about, func() error { return c.Store.Finish(ctx, os...) })
}
