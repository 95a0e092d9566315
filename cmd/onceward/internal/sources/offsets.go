package sources

import (
	"context"
	"fmt"
	"sync"

	"github.com/onceward/onceward"
)

// PositionStore keeps offsets: a store is one.
type PositionStore[TTx any] interface {
	onceward.Transactor[TTx]
	onceward.Positions[TTx]
}

// offsets is a PositionStore whose transactions run by themselves.
type offsets interface {
	takeOver(ctx context.Context, consumer string, p onceward.Position) (onceward.Position, error)
	advance(ctx context.Context, consumer string, p onceward.Position) error
}

type storedOffsets[TTx any] struct{ store PositionStore[TTx] }

func (o storedOffsets[TTx]) takeOver(ctx context.Context, consumer string, p onceward.Position) (onceward.Position, error) {
	ps, err := o.store.TakeOver(ctx, consumer, []onceward.Position{p})
	if err == nil && len(ps) != 1 {
		err = fmt.Errorf("onceward: TakeOver of one position returned %d", len(ps))
	}
	if err != nil {
		return onceward.Position{}, err
	}
	return ps[0], nil
}

func (o storedOffsets[TTx]) advance(ctx context.Context, consumer string, p onceward.Position) error {
	return o.store.InTx(ctx, func(ctx context.Context, tx TTx) error {
		return o.store.Advance(ctx, tx, consumer, []onceward.Position{p})
	})
}

// keeper stores how far a session's deliveries are finished without a gap.
type keeper struct {
	store    offsets
	consumer string
	epoch    int64

	mu    sync.Mutex        // held while the store advances, so that offsets only grow
	at    onceward.Position // as stored
	open  []int64           // Next of deliveries that are not covered by at, in order
	ready map[int64]bool    // those of open that are finished
}

func takeOver(ctx context.Context, store offsets, consumer, log string) (*keeper, error) {
	at, err := store.takeOver(ctx, consumer, onceward.Position{Log: log})
	if err != nil {
		return nil, err
	}
	return &keeper{store: store, consumer: consumer, epoch: at.Epoch, at: at, ready: map[int64]bool{}}, nil
}

// delivered is called with fresh deliveries, in order, before a consumer sees them.
func (k *keeper) delivered(ins []onceward.Incoming) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range ins {
		k.open = append(k.open, ins[i].Position.Next)
	}
}

// settle returns once the store has the end of the finished prefix. A delivery behind one that is
// not finished is remembered, and is stored when the gap is closed: after a crash it comes again.
func (k *keeper) settle(ctx context.Context, done []onceward.Settlement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range done {
		if x.Position.Epoch != k.epoch || x.Position.Log != k.at.Log {
			return onceward.ErrStale
		}
		if x.Position.Next > k.at.Next {
			k.ready[x.Position.Next] = true
		}
	}
	covered := 0
	for covered < len(k.open) && k.ready[k.open[covered]] {
		covered++
	}
	if covered == 0 {
		return nil
	}
	to := k.at
	to.Next = k.open[covered-1]
	if err := k.store.advance(ctx, k.consumer, to); err != nil {
		return err
	}
	for _, next := range k.open[:covered] {
		delete(k.ready, next)
	}
	k.at, k.open = to, k.open[covered:]
	return nil
}
