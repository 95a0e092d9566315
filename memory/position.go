package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/onceward/onceward"
)

type posKey struct {
	consumer, log string
	partition     int32
}

type position struct{ next, epoch int64 }

func (s *Store) lockPositions(ctx context.Context, o *owner, consumer string, ps []onceward.Position) error {
	sorted := slices.Clone(ps)
	slices.SortFunc(sorted, func(a, b onceward.Position) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Partition, b.Partition))
	})
	for _, p := range sorted {
		if err := s.lock(ctx, o, lockKey{lockPosition, consumer, p.Log, int64(p.Partition)}); err != nil {
			return err
		}
	}
	return nil
}

// TakeOver implements [onceward.Positions].
func (s *Store) TakeOver(ctx context.Context, consumer string, ps []onceward.Position) ([]onceward.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o owner
	defer s.unlock(&o)
	if err := s.lockPositions(ctx, &o, consumer, ps); err != nil {
		return nil, err
	}
	taken := make([]onceward.Position, len(ps))
	for i, p := range ps {
		k := posKey{consumer, p.Log, p.Partition}
		stored := s.positions[k]
		stored.epoch++
		s.positions[k] = stored
		taken[i] = onceward.Position{Log: p.Log, Partition: p.Partition, Next: stored.next, Epoch: stored.epoch}
	}
	return taken, nil
}

// Advance implements [onceward.Positions].
func (s *Store) Advance(ctx context.Context, tx *Tx, consumer string, ps []onceward.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(tx); err != nil {
		return err
	}
	if err := s.lockPositions(ctx, &tx.owner, consumer, ps); err != nil {
		return err
	}
	for _, p := range ps {
		if stored, ok := s.positions[posKey{consumer, p.Log, p.Partition}]; !ok || stored.epoch != p.Epoch {
			return fmt.Errorf("memory: %v has another owner: %w", p, onceward.ErrStale)
		}
	}
	for _, p := range ps {
		tx.positions[posKey{consumer, p.Log, p.Partition}] = position{p.Next, p.Epoch}
	}
	return nil
}
