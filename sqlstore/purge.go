package sqlstore

import (
	"context"
	"sync"
	"time"
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

// purgeStretch is how many records Purge looks at in one go.
const purgeStretch = 5000

// Purge removes old records. See [onceward.Inbox]. It walks along the primary key, for an index on
// the time would cost every claim: each call goes on where the last one of this process stopped,
// until limit records are removed or the end is reached. It looks without holding up writers, and
// removes each stretch in a short transaction of its own.
func (s *Store) Purge(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error) {
	if keep < 0 || limit <= 0 {
		return 0, nil
	}
	num, err := s.lookUp(ctx, consumer)
	if err != nil {
		return 0, err
	}
	removed := 0
	for more := num != 0; more && removed < limit; {
		var n int
		n, more, err = s.purgeStretch(ctx, num, consumer, keep, limit-removed)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	if removed < limit {
		n, err := s.purgeCounts(ctx, consumer, keep, limit-removed)
		return removed + n, err
	}
	return removed, nil
}

// purgeStretch moves the hand over one stretch, and reports whether there is more behind it.
func (s *Store) purgeStretch(ctx context.Context, num int64, consumer string, keep time.Duration, limit int) (n int, more bool, err error) {
	hand := s.hands.get(consumer)
	var last []byte
	var looked, old int
	err = s.db.QueryRowContext(ctx, s.sql.PurgeLook, millis(keep), num, hand, purgeStretch).Scan(&last, &looked, &old)
	if err != nil {
		return 0, false, s.failRead(ctx, err)
	}
	if old > 0 {
		err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
			var err error
			n, err = exec(ctx, t.tx, s.sql.Purge, num, num, hand, last, millis(keep), []byte(consumer), limit)
			return err
		})
		if err != nil || n == limit {
			return n, true, err // the hand stays: there may be more in this stretch
		}
	}
	if looked < purgeStretch {
		last = nil // come round
	}
	s.hands.set(consumer, last)
	return n, last != nil, nil
}

func (s *Store) purgeCounts(ctx context.Context, consumer string, keep time.Duration, limit int) (n int, err error) {
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		n, err = exec(ctx, t.tx, s.sql.PurgeCounts, []byte(consumer), []byte(consumer), millis(keep), limit)
		return err
	})
	return n, err
}
