package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/onceward/onceward"
)

// TakeOver makes the caller the owner of partitions. See [onceward.Positions].
func (s *Store) TakeOver(ctx context.Context, consumer string, ps []onceward.Position) ([]onceward.Position, error) {
	out := slices.Clone(ps)
	err := s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		for i := range out {
			p := &out[i]
			err := t.tx.QueryRowContext(ctx, s.sql.TakeOver, []byte(consumer), []byte(p.Log), p.Partition).Scan(&p.Next, &p.Epoch)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// Advance stores positions. See [onceward.Positions].
func (s *Store) Advance(ctx context.Context, tx *sql.Tx, consumer string, ps []onceward.Position) error {
	for _, p := range ps {
		n, err := exec(ctx, tx, s.sql.Advance, p.Next, []byte(consumer), []byte(p.Log), p.Partition, p.Epoch)
		if err != nil {
			return s.fail(ctx, err)
		}
		if n == 0 {
			return fmt.Errorf("%w: %s of consumer %s has another owner", onceward.ErrStale, p, onceward.Quote(consumer))
		}
	}
	return nil
}
