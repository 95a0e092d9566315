package onceward_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// box is the in-process source, which outlives its consumers, with an account of what became of each
// message sent.
type box struct {
	*memory.Source
	prefetch int // most deliveries in a session's hands; 0: as the consumer asks

	mu      sync.Mutex
	parcels []*parcel
}

// parcel is one message sent: the same message sent twice is two parcels.
type parcel struct {
	onceward.Message
	serial  string
	verdict onceward.Verdict // Ack or Reject once settled
}

const serialHeader = "serial"

func (b *box) send(ms ...onceward.Message) {
	for _, m := range ms {
		p := &parcel{Message: m, serial: fmt.Sprintf("%s/%d", m.ID, len(b.parcels))}
		p.Headers = onceward.Headers{serialHeader: {p.serial}}
		b.parcels = append(b.parcels, p)
		b.Send(&p.Message)
	}
}

// settled notes what a consumer has said of a message, and the source has confirmed.
func (b *box) settled(s *onceward.Settlement) {
	if s.Verdict == onceward.Requeue {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.parcels {
		if p.serial == s.Headers.Get(serialHeader) {
			p.verdict = s.Verdict
		}
	}
}

// boxSource is the box as one process sees it.
type boxSource struct {
	*box
	proc *proc
}

func (s *boxSource) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	if s.prefetch > 0 {
		p.Prefetch = s.prefetch
	}
	n, err := s.Source.Subscribe(ctx, p)
	if err != nil {
		return nil, err
	}
	s.proc.sessions = append(s.proc.sessions, n)
	return &boxSession{singly{n}, s.box}, nil
}

type boxSession struct {
	singly
	box *box
}

// singly receives one delivery at a time. Of several, a lane may see the first before the others have
// come, or not, and an execution would not be the same again.
type singly struct{ onceward.Session }

func (n singly) Receive(ctx context.Context, _ int) ([]onceward.Incoming, error) {
	return n.Session.Receive(ctx, 1)
}

type singlyQueue struct{ onceward.StoreQueue }

func (s singlyQueue) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	n, err := s.StoreQueue.Subscribe(ctx, p)
	if err != nil {
		return nil, err
	}
	return singly{n}, nil
}

func (n *boxSession) Settle(ctx context.Context, ss ...onceward.Settlement) error {
	err := n.Session.Settle(ctx, ss...)
	for i := range ss {
		if err == nil {
			n.box.settled(&ss[i])
		}
	}
	return err
}
