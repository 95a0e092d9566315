package sources

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// returns are deliveries that were given back and come again in the same session.
type returns struct {
	mu    sync.Mutex
	items []returned
}

type returned struct {
	in  onceward.Incoming
	due time.Time
}

func (r *returns) add(x onceward.Settlement) {
	x.Redelivered, x.Incoming.Attempts = true, x.Attempts
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, returned{x.Incoming, time.Now().Add(x.After)})
}

// due takes out what is due, at most so many.
func (r *returns) due(most int) []onceward.Incoming {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ins []onceward.Incoming
	now := time.Now()
	r.items = slices.DeleteFunc(r.items, func(x returned) bool {
		take := len(ins) < most && !x.due.After(now)
		if take {
			ins = append(ins, x.in)
		}
		return take
	})
	return ins
}

// wait waits for the first to be due and takes it out; io.EOF if there is none.
func (r *returns) wait(ctx context.Context) ([]onceward.Incoming, error) {
	for {
		r.mu.Lock()
		if len(r.items) == 0 {
			r.mu.Unlock()
			return nil, io.EOF
		}
		first := slices.MinFunc(r.items, func(a, b returned) int { return a.due.Compare(b.due) })
		r.mu.Unlock()
		t := time.NewTimer(time.Until(first.due))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		if ins := r.due(1); len(ins) > 0 {
			return ins, nil
		}
	}
}
