package sources

import (
	"context"
	"errors"
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
	takeOver(ctx context.Context, consumer string, ps ...onceward.Position) ([]onceward.Position, error)
	advance(ctx context.Context, consumer string, ps ...onceward.Position) error
}

type storedOffsets[TTx any] struct{ store PositionStore[TTx] }

func (o storedOffsets[TTx]) takeOver(ctx context.Context, consumer string, ps ...onceward.Position) ([]onceward.Position, error) {
	at, err := o.store.TakeOver(ctx, consumer, ps)
	if err == nil && len(at) != len(ps) {
		err = fmt.Errorf("onceward: TakeOver of %d positions returned %d", len(ps), len(at))
	}
	return at, err
}

func (o storedOffsets[TTx]) advance(ctx context.Context, consumer string, ps ...onceward.Position) error {
	return o.store.InTx(ctx, func(ctx context.Context, tx TTx) error {
		return o.store.Advance(ctx, tx, consumer, ps)
	})
}

// Partitions of a file's log. The first has the offset up to which everything is finished. The
// second equals it while nothing beyond may have been started, and is dirty during a session.
const (
	finished = iota
	started
)

const dirty = -1

// keeper stores how far a session's deliveries are finished without a gap.
type keeper struct {
	store    offsets
	consumer string
	inOrder  bool // settling behind a gap is an error
	epoch    int64
	repeats  int // so many of the first deliveries may be repeats

	mu    sync.Mutex        // held while the store advances, so that offsets only grow
	at    onceward.Position // as stored
	mark  onceward.Position // the partition started
	open  []int64           // Next of deliveries that are not covered by at, in order
	ready map[int64]bool    // those of open that are finished
	lost  bool              // another session has taken over
}

// takeOver fences the consumer's former sessions, and finds out where the last one ended and whether
// it was interrupted, in which case as many messages as it held may have been started.
func takeOver(ctx context.Context, store offsets, p onceward.SubscribeParams, log string, inOrder bool) (*keeper, error) {
	ps, err := store.takeOver(ctx, p.Consumer,
		onceward.Position{Log: log, Partition: finished}, onceward.Position{Log: log, Partition: started})
	if err != nil {
		return nil, err
	}
	k := &keeper{
		store: store, consumer: p.Consumer, inOrder: inOrder,
		epoch: ps[finished].Epoch, at: ps[finished], mark: ps[started], ready: map[int64]bool{},
	}
	if k.mark.Next != k.at.Next {
		k.repeats = p.Prefetch
	}
	k.mark.Next = dirty
	return k, store.advance(ctx, p.Consumer, k.mark)
}

var errTakenOver = fmt.Errorf("another process with a consumer of this name has taken over the file: %w", onceward.ErrStale)

// delivered is called with fresh deliveries, in order, before a consumer sees them.
func (k *keeper) delivered(ins []onceward.Incoming) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost {
		return onceward.Permanent(errTakenOver)
	}
	for i := range ins {
		ins[i].Redelivered = k.repeats > 0
		k.repeats = max(0, k.repeats-1)
		k.open = append(k.open, ins[i].Position.Next)
	}
	return nil
}

// settle returns once the store has the end of the finished prefix. A delivery behind one that is
// not finished is remembered, and is stored when the gap is closed: after a crash it comes again.
func (k *keeper) settle(ctx context.Context, done []onceward.Settlement) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range done {
		if k.lost || x.Position.Epoch != k.epoch || x.Position.Log != k.at.Log {
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
	if covered > 0 {
		if err := k.advance(ctx, covered); err != nil {
			return err
		}
	}
	if k.inOrder && len(k.ready) > 0 {
		return errors.New("settled out of order: an earlier line was given back")
	}
	return nil
}

func (k *keeper) advance(ctx context.Context, covered int) error {
	to := k.at
	to.Next = k.open[covered-1]
	if err := k.store.advance(ctx, k.consumer, to); err != nil {
		k.lost = k.lost || errors.Is(err, onceward.ErrStale)
		return err
	}
	for _, next := range k.open[:covered] {
		delete(k.ready, next)
	}
	k.at, k.open = to, k.open[covered:]
	return nil
}

// close remembers that nothing beyond the offset was started, if that is so.
func (k *keeper) close(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost || len(k.open) > 0 || k.repeats > 0 {
		return nil
	}
	k.mark.Next = k.at.Next
	err := k.store.advance(ctx, k.consumer, k.mark)
	if errors.Is(err, onceward.ErrStale) {
		return nil
	}
	return err
}
