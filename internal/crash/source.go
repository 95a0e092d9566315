package crash

import (
	"context"

	"github.com/onceward/onceward"
)

// Source wraps a source. If inner is a queue of a store, use [Queue] instead.
func Source(inner onceward.Source, s Step) onceward.Source { return &source{inner, s} }

// Queue wraps a source that is a queue of the store which store is the wrapper of: a consumer that
// uses store as well deletes rows with their effects, as it would without the wrappers.
func Queue(inner onceward.Source, store onceward.Queue, s Step) onceward.StoreQueue {
	return &storeQueue{source{inner, s}, store}
}

type source struct {
	onceward.Source
	step Step
}

type storeQueue struct {
	source
	backing onceward.Queue
}

var (
	_ onceward.Source     = (*source)(nil)
	_ onceward.StoreQueue = (*storeQueue)(nil)
	_ onceward.Session    = (*session)(nil)
)

func (q *storeQueue) Backing() onceward.Queue { return q.backing }

func (q *source) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	var got onceward.Session
	err := q.step.around(ctx, "subscribe", "", func() (err error) {
		got, err = q.Source.Subscribe(ctx, p)
		return err
	})
	if err != nil {
		if got != nil {
			_ = got.Close(context.WithoutCancel(ctx)) // the connection breaks, and nobody knows of it
		}
		return nil, err
	}
	return &session{got, q.step}, nil
}

type session struct {
	inner onceward.Session
	step  Step
}

// Receive has its second point if something has come. See [Idle].
func (n *session) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if err := n.step(ctx, "receive"+Before); err != nil {
		return nil, err
	}
	in, err := n.inner.Receive(ctx, most)
	if len(in) == 0 {
		return in, err
	}
	about := names(in, func(in onceward.Incoming) string { return in.ID })
	if err := n.step(ctx, "receive"+After+" "+about); err != nil {
		return nil, err
	}
	return in, err
}

func (n *session) Settle(ctx context.Context, ss ...onceward.Settlement) error {
	about := names(ss, func(s onceward.Settlement) string { return verdict(s.Verdict) + s.ID })
	return n.step.around(ctx, "settle", about, func() error { return n.inner.Settle(ctx, ss...) })
}

func (n *session) Close(ctx context.Context) error {
	return n.step.around(ctx, "close", "", func() error { return n.inner.Close(ctx) })
}

// verdict marks what becomes of a message: + done, ~ again, - dead.
func verdict(v onceward.Verdict) string {
	switch v {
	case onceward.Ack:
		return "+"
	case onceward.Requeue:
		return "~"
	case onceward.Reject:
		return "-"
	}
	return "?"
}
