package sqlstore

import (
	"context"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/storequeue"
)

// Start counts a start.
func (s *Store) Start(ctx context.Context, row onceward.Row) (int, error) {
	return s.Attempt(ctx, "", onceward.Record{Row: &row})
}

// Queue is a queue.
func (s *Store) Queue(name string) onceward.StoreQueue { return storequeue.New(s, name) }
