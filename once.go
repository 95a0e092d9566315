package onceward

import (
	"context"
	"errors"
	"time"
)

// Once runs fn in a transaction of the store unless name has consumed id before, and reports whether
// it ran. It is [EffectivelyOnce] for what comes without a broker: webhooks, requests with an
// idempotency key, cron jobs. The claim commits with fn's effect or not at all.
//
// It blocks while another transaction holds id, for a time the store bounds, and then returns
// [ErrBusy]. After a rollback that is nobody's fault, or a commit whose outcome is unknown, it claims
// again, so fn may be called more than once; only one call takes effect. A panic of fn rolls back and
// goes on. If the outcome stays unknown
// the error is [ErrInDoubt]: call Once again.
func Once[TTx any](ctx context.Context, s Store[TTx], name, id string, fn func(ctx context.Context, tx TTx) error) (ran bool, err error) {
	if id == "" {
		return false, ErrNoID
	}
	if name == "" {
		return false, Permanent(errors.New("onceward: Once needs a name, under which it remembers ids"))
	}
	const tries = 5
	rec := []Record{{ID: StoredID(id)}}
	inDoubt := false
	for try := 1; ; try++ {
		var found []Found
		var failed error
		err := s.InTx(ctx, func(ctx context.Context, tx TTx) (err error) {
			if found, err = s.Claim(ctx, tx, name, rec); err != nil || found[0] != Fresh {
				return err
			}
			failed = fn(ctx, tx)
			return failed
		})
		switch {
		case err == nil:
			return found[0] == Fresh || inDoubt && found[0] == Duplicate, nil
		case errors.Is(err, ErrInDoubt) && failed == nil: // the commit's outcome, not something of fn's
			inDoubt = true
		case !errors.Is(err, ErrConflict):
			if inDoubt {
				err = errors.Join(ErrInDoubt, err)
			}
			return false, err
		}
		if try == tries {
			return false, err
		}
		t := time.NewTimer(jitter(try))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false, errors.Join(err, ctx.Err())
		}
	}
}
