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

// TakeOver makes the caller the owner of partitions. See [onceward.Positions].
func (s *Store) TakeOver(ctx context.Context, consumer string, ps []onceward.Position) ([]onceward.Position, error) {
	out := slices.Clone(ps)
	err := s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		for _, p := range inOrder(out) {
			args := []any{[]byte(consumer), anyLength(p.Log), int64(p.Partition)}
			if _, err := s.exec(ctx, t.tx, s.sql.TakeOver, args...); err != nil {
				return err
			}
			if err := s.queryRow(ctx, t.tx, s.sql.Position, args...).Scan(&p.Next, &p.Epoch); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// Advance stores positions. See [onceward.Positions].
func (s *Store) Advance(ctx context.Context, tx *sql.Tx, consumer string, ps []onceward.Position) error {
	for _, p := range inOrder(slices.Clone(ps)) {
		n, err := s.exec(ctx, tx, s.sql.Advance, p.Next, []byte(consumer), anyLength(p.Log), int64(p.Partition), p.Epoch)
		if err != nil {
			return s.failStatement(ctx, err)
		}
		if n == 0 { // MySQL does not count a row that has the position already
			var next, epoch int64
			err = s.queryRow(ctx, tx, s.sql.Position, []byte(consumer), anyLength(p.Log), int64(p.Partition)).Scan(&next, &epoch)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return s.failStatement(ctx, err)
			}
			if err == nil && epoch == p.Epoch && next == p.Next {
				continue
			}
			return fmt.Errorf("%w: %s of consumer %s has another owner", onceward.ErrStale, p, onceward.Quote(consumer))
		}
	}
	return nil
}

// inOrder gives positions in the order in which everybody locks them, so that nobody deadlocks.
func inOrder(ps []onceward.Position) []*onceward.Position {
	sorted := make([]*onceward.Position, len(ps))
	for i := range ps {
		sorted[i] = &ps[i]
	}
	slices.SortFunc(sorted, func(a, b *onceward.Position) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Partition, b.Partition))
	})
	return sorted
}
