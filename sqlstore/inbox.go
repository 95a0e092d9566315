package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/onceward/onceward"
)

// Claim inserts the records in one statement, up to 500 at a time, sorted, so that two batches can't
// deadlock. See [onceward.Inbox]. On SQLite no twin can be in flight, for tx holds the writer lock; it
// waits in InTx. Elsewhere a twin is waited for up to Config.LockTimeout.
//
// A tx that the program has begun itself must be at READ COMMITTED: above that, a transaction that
// waited for its twin does not see what the twin has done.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	c := claim{s: s, tx: tx, consumer: []byte(consumer), rs: rs, found: make([]onceward.Found, len(rs))}
	err := c.number(ctx)
	if err == nil {
		err = c.insert(ctx)
	}
	if err == nil {
		err = c.tidy(ctx)
	}
	return c.found, s.failStatement(ctx, err)
}

// claim is the work of one call of Claim or Park.
type claim struct {
	s        *Store
	tx       *sql.Tx
	consumer []byte
	num      int64
	rs       []onceward.Record
	found    []onceward.Found
	counted  []any // ids whose counts of Attempt go
}

func (c *claim) number(ctx context.Context) (err error) {
	c.num, err = c.s.consumer(ctx, c.tx, string(c.consumer))
	return c.busy(err)
}

// busy says of a lock that was not to be had within the time for twins that a twin has it.
func (c *claim) busy(err error) error {
	if err != nil && c.s.dialect.timedOut(err) {
		return fmt.Errorf("%w: %w", onceward.ErrBusy, err)
	}
	return err
}

// insert inserts the records and fills found.
func (c *claim) insert(ctx context.Context) error {
	order := make([]int, len(c.rs))
	for i := range order {
		order[i] = i
		if n := len(c.rs[i].ID); n > maxName {
			return onceward.Permanent(fmt.Errorf("onceward: a stored id has %d bytes, and at most %d are possible", n, maxName))
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(c.rs[a].ID, c.rs[b].ID) })
	for part := range slices.Chunk(order, chunk) {
		short, err := c.s.dialect.claim(ctx, c, part)
		if err != nil {
			return c.busy(err)
		}
		for _, i := range part {
			c.found[i] = onceward.Fresh
		}
		for _, i := range short {
			c.found[i] = 0
		}
		if len(short) > 0 {
			if err := c.explain(ctx, short); err != nil {
				return err
			}
		}
	}
	return nil
}

// plain reports whether records have neither rows nor keys.
func (c *claim) plain(part []int) bool {
	return !slices.ContainsFunc(part, func(i int) bool { return c.rs[i].Row != nil || c.rs[i].OrderKey != "" })
}

// table has the columns that a claim needs: id, fingerprint and, unless plain, the row's sequence and
// fence, 0 if there is none, and the key.
func (c *claim) table(part []int, plain bool) table {
	t := make(table, len(part))
	for k, i := range part {
		r := &c.rs[i]
		if plain {
			t[k] = []any{[]byte(r.ID), r.Fingerprint}
			continue
		}
		row := cmp.Or(r.Row, &onceward.Row{})
		t[k] = []any{[]byte(r.ID), r.Fingerprint, row.Seq, row.Fence, anyLength(r.OrderKey)}
	}
	return t
}

// without removes what returned from part: the indexes of records whose ids are not in it.
func (c *claim) without(part []int, ids map[string]bool) (short []int) {
	for _, i := range part {
		if !ids[c.rs[i].ID] {
			short = append(short, i)
		}
	}
	return short
}

// explain finds out why records were not inserted. It never makes one fresh.
func (c *claim) explain(ctx context.Context, short []int) error {
	k, err := c.known(ctx, short)
	if err != nil {
		return err
	}
	for _, i := range short {
		if c.found[i] = k.judge(&c.rs[i]); c.found[i] == 0 {
			return fmt.Errorf("%w: the message with stored id %s was neither inserted nor found", onceward.ErrConflict, onceward.Quote(c.rs[i].ID))
		}
	}
	return nil
}

func (c *claim) ids(part []int) []any {
	ids := make([]any, len(part))
	for k, i := range part {
		ids[k] = []byte(c.rs[i].ID)
	}
	return ids
}

// known looks up what the store knows about records.
func (c *claim) known(ctx context.Context, part []int) (*known, error) {
	var seqs, keys []any
	for _, i := range part {
		if r := c.rs[i].Row; r != nil {
			seqs = append(seqs, r.Seq)
		}
		if key := c.rs[i].OrderKey; key != "" {
			keys = append(keys, anyLength(key))
		}
	}
	k := &known{fences: map[int64]int64{}, parked: map[string][]parkedRow{}, finished: map[string]int64{}, keys: map[string]int64{}}
	return k, k.read(ctx, c, c.ids(part), seqs, keys)
}

// known is what the store knows about records that were not inserted.
type known struct {
	fences   map[int64]int64        // of leased rows, by sequence
	parked   map[string][]parkedRow // by id
	finished map[string]int64       // fingerprint by id
	keys     map[string]int64       // first waiting sequence by order key, as stored
}

type parkedRow struct{ seq, fp int64 }

func (k *known) read(ctx context.Context, c *claim, ids, seqs, keys []any) error {
	err := c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
		var seq, fence int64
		err := scan(&seq, &fence)
		k.fences[seq] = fence
		return err
	}, c.s.sql.Fences, seqs)
	if err != nil {
		return err
	}
	return errors.Join(
		c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var id []byte
			var row parkedRow
			err := scan(&id, &row.seq, &row.fp)
			k.parked[string(id)] = append(k.parked[string(id)], row)
			return err
		}, c.s.sql.ParkedRows, ids, c.consumer),
		c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var id []byte
			var fp int64
			err := scan(&id, &fp)
			k.finished[string(id)] = fp
			return err
		}, c.s.sql.Finished, ids, c.num),
		c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var key []byte
			var seq int64
			err := scan(&key, &seq)
			k.keys[string(key)] = seq
			return err
		}, c.s.sql.HeldKeys, keys, c.consumer))
}

func (k *known) judge(r *onceward.Record) onceward.Found {
	own := int64(0)
	if r.Row != nil {
		own = r.Row.Seq
		if fence, ok := k.fences[own]; !ok || fence != r.Row.Fence {
			return onceward.Lost
		}
	}
	same := func(fp int64) bool { return fp == 0 || r.Fingerprint == 0 || fp == r.Fingerprint }
	if slices.ContainsFunc(k.parked[r.ID], func(p parkedRow) bool { return p.seq != own && same(p.fp) }) {
		return onceward.Parked
	}
	if fp, ok := k.finished[r.ID]; ok {
		if same(fp) {
			return onceward.Duplicate
		}
		return onceward.OtherBody
	}
	if first, ok := k.keys[string(anyLength(r.OrderKey))]; ok && r.OrderKey != "" && (own == 0 || first < own) {
		return onceward.Held
	}
	return 0
}

// tidy deletes the rows of what is finished, or waits already, and their counts.
func (c *claim) tidy(ctx context.Context) error {
	var seqs []any
	for i, f := range c.found {
		r := &c.rs[i]
		if r.Row != nil && (f == onceward.Fresh || f == onceward.Duplicate || f == onceward.Parked) {
			seqs = append(seqs, r.Row.Seq)
			if r.OrderKey != "" {
				c.s.appended(c.tx, onceward.Retries) // the next one of its key may be leased
			}
		}
		if r.Counted && (f == onceward.Fresh || f == onceward.Duplicate || f == onceward.Parked) {
			c.counted = append(c.counted, []byte(r.ID))
		}
	}
	if _, err := c.s.execIn(ctx, c.tx, c.s.sql.DeleteRows, seqs); err != nil {
		return err
	}
	_, err := c.s.execIn(ctx, c.tx, c.s.sql.DeleteCounts, c.counted, c.consumer)
	return err
}

// Attempt counts a start of a handler. See [onceward.Inbox].
func (s *Store) Attempt(ctx context.Context, consumer string, r onceward.Record) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		args := []any{[]byte(consumer), []byte(r.ID)}
		if _, err := s.execOften(ctx, t.tx, s.sql.CountAttempt, args...); err != nil {
			return err
		}
		return s.queryRow(ctx, t.tx, s.sql.Attempts, args...).Scan(&n)
	})
	return n, err
}

// Start counts a start of a handler with a leased row. See [onceward.Queue].
func (s *Store) Start(ctx context.Context, row onceward.Row) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		ours, err := s.execOften(ctx, t.tx, s.sql.CountRowAttempt, row.Seq, row.Fence)
		if err != nil {
			return err
		}
		if ours == 0 {
			return onceward.ErrLeaseLost
		}
		return s.queryRow(ctx, t.tx, s.sql.RowAttempts, row.Seq).Scan(&n)
	})
	return n, err
}

// Recorded looks messages up in the inbox. See [onceward.Inbox].
func (s *Store) Recorded(ctx context.Context, consumer string, rs []onceward.Record) ([]bool, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	num, err := s.lookUp(ctx, consumer)
	if err != nil || num == 0 {
		return make([]bool, len(rs)), err
	}
	ids := make([]any, len(rs))
	for i := range rs {
		ids[i] = []byte(rs[i].ID)
	}
	there := map[string]bool{}
	err = s.eachIn(ctx, s.db, func(scan func(...any) error) error {
		var id []byte
		var fp int64
		err := scan(&id, &fp)
		there[string(id)] = true
		return err
	}, s.sql.Finished, ids, num)
	found := make([]bool, len(rs))
	for i := range rs {
		found[i] = there[rs[i].ID]
	}
	return found, s.failRead(ctx, err)
}

// Known reports whether the inbox has a record of consumer.
func (s *Store) Known(ctx context.Context, consumer string) (known bool, err error) {
	num, err := s.lookUp(ctx, consumer)
	if err != nil || num == 0 {
		return false, err
	}
	err = s.queryRow(ctx, s.db, s.sql.Known, num).Scan(&known)
	return known, s.failRead(ctx, err)
}

// lookUp is a consumer's number, or 0 if it has none.
func (s *Store) lookUp(ctx context.Context, consumer string) (num int64, err error) {
	if n, ok := s.nums.Load(consumer); ok {
		return n.(int64), nil //nolint:forcetypeassert // only numbers are stored
	}
	err = s.queryRow(ctx, s.db, s.sql.Consumer, []byte(consumer)).Scan(&num)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return num, s.failRead(ctx, err)
}
