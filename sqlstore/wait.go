package sqlstore

import (
	"context"
	"sync"
	"time"
)

// pollInterval is how soon a row is found that another process wrote, or that became due.
const pollInterval = 250 * time.Millisecond

// notifier wakes those who wait for rows of a queue.
type notifier struct {
	mu     sync.Mutex
	queues map[string]*signals
}

type signals struct {
	count int           // signals so far
	seen  int           // count before the last look that found nothing
	next  chan struct{} // closed at the next signal
}

func (n *notifier) of(queue string) *signals {
	if n.queues == nil {
		n.queues = map[string]*signals{}
	}
	s := n.queues[queue]
	if s == nil {
		s = &signals{next: make(chan struct{})}
		n.queues[queue] = s
	}
	return s
}

func (n *notifier) signal(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.of(queue)
	s.count++
	close(s.next)
	s.next = make(chan struct{})
}

func (n *notifier) now(queue string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of(queue).count
}

// empty notes that a look which began after count signals found nothing.
func (n *notifier) empty(queue string, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(queue).seen = count
}

// Wait returns at once if there was a signal since the last Lease that found nothing, else at the
// next one or after 250 ms. See [onceward.Queue].
func (s *Store) Wait(ctx context.Context, queue string) error {
	s.notify.mu.Lock()
	q := s.notify.of(queue)
	next, missed := q.next, q.count != q.seen
	q.seen = q.count
	s.notify.mu.Unlock()
	if missed {
		return ctx.Err()
	}
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-next:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
