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

// Claim inserts the records in one statement, up to 500 at a time. See [onceward.Inbox]. On SQLite
// no twin can be in flight, for tx holds the writer lock; it waits in InTx.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	num, err := s.consumer(ctx, tx, consumer)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	c := claim{s: s, tx: tx, consumer: []byte(consumer), num: num, rs: rs, found: make([]onceward.Found, len(rs))}
	if err = c.insert(ctx); err == nil {
		err = c.tidy(ctx)
	}
	return c.found, s.fail(ctx, err)
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

// insert inserts the records and fills found. Sorted, two batches can't deadlock.
func (c *claim) insert(ctx context.Context) error {
	order := make([]int, len(c.rs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(c.rs[a].ID, c.rs[b].ID) })
	for part := range slices.Chunk(order, chunk) {
		stmt, args := c.statement(part)
		var err error
		if len(part) == 1 {
			err = c.insertOne(ctx, part, stmt, args)
		} else {
			err = c.insertMany(ctx, part, stmt, args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *claim) statement(part []int) (string, []any) {
	plain := !slices.ContainsFunc(part, func(i int) bool { return c.rs[i].Row != nil || c.rs[i].OrderKey != "" })
	args := append(make([]any, 0, 5*len(part)+3), c.num)
	for _, i := range part {
		r := &c.rs[i]
		args = append(args, []byte(r.ID), r.Fingerprint)
		if !plain {
			row := cmp.Or(r.Row, &onceward.Row{})
			args = append(args, row.Seq, row.Fence, []byte(r.OrderKey))
		}
	}
	if plain {
		return rows(c.s.sql.Claim, len(part), 2), append(args, c.consumer)
	}
	return rows(c.s.sql.ClaimRows, len(part), 5), append(args, c.consumer, c.consumer)
}

func (c *claim) insertOne(ctx context.Context, part []int, stmt string, args []any) error {
	n, err := affected(c.s.prepared.exec(ctx, c.tx, stmt, args...))
	if err == nil && n == 0 {
		return c.explain(ctx, part)
	}
	c.found[part[0]] = onceward.Fresh
	return err
}

// insertMany counts first, which is twice as fast as having the ids returned. Only if the count is
// short it takes the insert back, and repeats it to learn which are fresh.
func (c *claim) insertMany(ctx context.Context, part []int, stmt string, args []any) error {
	sql := c.s.sql
	if _, err := c.s.prepared.exec(ctx, c.tx, sql.Savepoint); err != nil {
		return err
	}
	n, err := c.execMany(ctx, len(part), stmt, args)
	if err != nil {
		return err
	}
	if n == len(part) {
		for _, i := range part {
			c.found[i] = onceward.Fresh
		}
		_, err = c.s.prepared.exec(ctx, c.tx, sql.Release)
		return err
	}
	if _, err = c.tx.ExecContext(ctx, sql.RollbackTo); err != nil {
		return err
	}
	if _, err = c.tx.ExecContext(ctx, sql.Release); err != nil {
		return err
	}
	fresh := make(map[string]bool, n)
	err = each(ctx, c.tx, func(scan func(...any) error) error {
		var id []byte
		err := scan(&id)
		fresh[string(id)] = true
		return err
	}, stmt+" "+sql.ReturningID, args...)
	if err != nil {
		return err
	}
	var short []int
	for _, i := range part {
		if fresh[c.rs[i].ID] {
			c.found[i] = onceward.Fresh
			delete(fresh, c.rs[i].ID)
		} else {
			short = append(short, i)
		}
	}
	return c.explain(ctx, short)
}

// execMany prepares the sizes that come often: small ones, and those of full batches.
func (c *claim) execMany(ctx context.Context, n int, stmt string, args []any) (int, error) {
	if n <= 16 || n%64 == 0 || n == chunk {
		return affected(c.s.prepared.exec(ctx, c.tx, stmt, args...))
	}
	return exec(ctx, c.tx, stmt, args...)
}

// explain finds out why records were not inserted. It never makes one fresh.
func (c *claim) explain(ctx context.Context, short []int) error {
	ids := make([]any, len(short))
	var seqs, keys []any
	for k, i := range short {
		ids[k] = []byte(c.rs[i].ID)
		if r := c.rs[i].Row; r != nil {
			seqs = append(seqs, r.Seq)
		}
		if key := c.rs[i].OrderKey; key != "" {
			keys = append(keys, []byte(key))
		}
	}
	k := known{fences: map[int64]int64{}, parked: map[string][]parkedRow{}, finished: map[string]int64{}, keys: map[string]int64{}}
	if err := k.read(ctx, c, ids, seqs, keys); err != nil {
		return err
	}
	for _, i := range short {
		if c.found[i] = k.judge(&c.rs[i]); c.found[i] == 0 {
			return fmt.Errorf("%w: the message with stored id %s was neither inserted nor found", onceward.ErrConflict, onceward.Quote(c.rs[i].ID))
		}
	}
	return nil
}

// known is what the store knows about records that were not inserted.
type known struct {
	fences   map[int64]int64        // of leased rows, by sequence
	parked   map[string][]parkedRow // by id
	finished map[string]int64       // fingerprint by id
	keys     map[string]int64       // first waiting sequence by order key
}

type parkedRow struct{ seq, fp int64 }

func (k *known) read(ctx context.Context, c *claim, ids, seqs, keys []any) error {
	return errors.Join(
		eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var seq, fence int64
			err := scan(&seq, &fence)
			k.fences[seq] = fence
			return err
		}, c.s.sql.Fences, seqs),
		eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var id []byte
			var row parkedRow
			err := scan(&id, &row.seq, &row.fp)
			k.parked[string(id)] = append(k.parked[string(id)], row)
			return err
		}, c.s.sql.ParkedRows, ids, c.consumer),
		eachIn(ctx, c.tx, func(scan func(...any) error) error {
			var id []byte
			var fp int64
			err := scan(&id, &fp)
			k.finished[string(id)] = fp
			return err
		}, c.s.sql.Finished, ids, c.num),
		eachIn(ctx, c.tx, func(scan func(...any) error) error {
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
	if first, ok := k.keys[r.OrderKey]; ok && r.OrderKey != "" && (own == 0 || first < own) {
		return onceward.Held
	}
	return 0
}

// tidy deletes the rows of what is finished, or waits already, and the counts of what is fresh.
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
		if r.Counted && f == onceward.Fresh {
			c.counted = append(c.counted, []byte(r.ID))
		}
	}
	if _, err := execIn(ctx, c.tx, c.s.sql.DeleteRows, seqs); err != nil {
		return err
	}
	_, err := execIn(ctx, c.tx, c.s.sql.DeleteCounts, c.counted, c.consumer)
	return err
}

// Attempt counts a start of a handler. See [onceward.Inbox].
func (s *Store) Attempt(ctx context.Context, consumer string, r onceward.Record) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		return t.tx.QueryRowContext(ctx, s.sql.CountAttempt, []byte(consumer), []byte(r.ID)).Scan(&n)
	})
	return n, err
}

// Start counts a start of a handler with a leased row. See [onceward.Queue].
func (s *Store) Start(ctx context.Context, row onceward.Row) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		err := t.tx.QueryRowContext(ctx, s.sql.CountRowAttempt, row.Seq, row.Fence).Scan(&n)
		if errors.Is(err, sql.ErrNoRows) {
			return onceward.ErrLeaseLost
		}
		return err
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
	err = eachIn(ctx, s.db, func(scan func(...any) error) error {
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
	err = s.db.QueryRowContext(ctx, s.sql.Known, num).Scan(&known)
	return known, s.failRead(ctx, err)
}

// lookUp is a consumer's number, or 0 if it has none.
func (s *Store) lookUp(ctx context.Context, consumer string) (num int64, err error) {
	if n, ok := s.nums.Load(consumer); ok {
		return n.(int64), nil //nolint:forcetypeassert // only numbers are stored
	}
	err = s.db.QueryRowContext(ctx, s.sql.Consumer, []byte(consumer)).Scan(&num)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return num, s.failRead(ctx, err)
}
