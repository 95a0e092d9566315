package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// hands remember where the next Purge of a consumer goes on.
type hands struct {
	mu sync.Mutex
	at map[string][]byte
}

func (h *hands) get(consumer string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return blob(h.at[consumer])
}

func (h *hands) set(consumer string, at []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = map[string][]byte{}
	}
	h.at[consumer] = at
}

// purging is one step of Purge.
type purging struct {
	consumer string
	num      int64
	keep     time.Duration
	limit    int
}

// mostPause is how long Purge rests between two stretches at most.
const mostPause = 100 * time.Millisecond

// Purge removes old records. See [onceward.Inbox]. It walks along the table, for an index on the time
// would cost every claim: each call goes on where the last one of this process stopped, until limit
// records are removed or the end is reached. It looks without holding up writers, removes each stretch
// in a short transaction of its own, and rests after each as long as it took. Where another process
// purges the same tables, on Postgres and MySQL, it leaves it to that one and returns.
func (s *Store) Purge(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	if keep == onceward.Forever {
		return s.purgeCounts(ctx, consumer, onceward.KeepCounts, limit)
	}
	num, err := s.lookUp(ctx, consumer)
	if err != nil {
		return 0, err
	}
	removed := 0
	for more := num != 0; more && removed < limit; {
		var n int
		start := time.Now()
		n, more, err = s.dialect.purge(ctx, s, purging{consumer, num, keep, limit - removed})
		removed += n
		if err != nil {
			return removed, err
		}
		if more && removed < limit {
			if err := rest(ctx, min(time.Since(start), mostPause)); err != nil {
				return removed, err
			}
		}
	}
	if removed < limit {
		n, err := s.purgeCounts(ctx, consumer, keep, limit-removed)
		return removed + n, err
	}
	return removed, nil
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// purgeStretch is how many records one stretch along the primary key has.
const purgeStretch = 5000

// purgeByKey moves the hand over one stretch of the primary key. remove is called in a transaction to
// delete what is old up to a key.
func (s *Store) purgeByKey(ctx context.Context, p purging, remove func(ctx context.Context, t *transaction, from, to []byte) (int, error)) (n int, more bool, err error) {
	hand := s.hands.get(p.consumer)
	var last []byte
	var looked, old int
	err = s.queryRow(ctx, s.db, s.sql.own["PurgeLook"], millis(p.keep), p.num, hand, purgeStretch).Scan(&last, &looked, &old)
	if err != nil {
		return 0, false, s.failRead(ctx, err)
	}
	if old > 0 {
		err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
			n, err = remove(ctx, t, hand, last)
			return err
		})
		if err != nil || n == p.limit {
			return n, true, err // the hand stays: there may be more in this stretch
		}
	}
	if looked < purgeStretch {
		last = nil // come round
	}
	s.hands.set(p.consumer, last)
	return n, last != nil, nil
}

func (p *purging) args(from, to []byte) []any {
	return []any{p.num, from, to, millis(p.keep), []byte(p.consumer), p.limit}
}

func (*sqlite) purge(ctx context.Context, s *Store, p purging) (int, bool, error) {
	return s.purgeByKey(ctx, p, func(ctx context.Context, t *transaction, from, to []byte) (int, error) {
		return s.exec(ctx, t.tx, s.sql.Purge, p.args(from, to)...)
	})
}

func (s *Store) purgeCounts(ctx context.Context, consumer string, keep time.Duration, limit int) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		n, err = s.exec(ctx, t.tx, s.sql.PurgeCounts, []byte(consumer), millis(keep), limit)
		return err
	})
	return n, err
}
