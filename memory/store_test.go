package memory_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
	"github.com/onceward/onceward/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness[*memory.Tx]{
		Open:       openStore,
		Concurrent: true,
		MaxWait:    300 * time.Millisecond,
		Ends: []storetest.Ending[*memory.Tx]{
			{Name: "commit", End: func(_ context.Context, tx *memory.Tx) error { return tx.Commit() }},
			{Name: "rollback", End: func(_ context.Context, tx *memory.Tx) error { return tx.Rollback() }},
		},
	})
}

func openStore(*testing.T) storetest.Instance[*memory.Tx] {
	s := memory.NewStore()
	s.LockWait = 300 * time.Millisecond
	return storetest.Instance[*memory.Tx]{
		Store: s,
		Effect: func(_ context.Context, tx *memory.Tx, id string) error {
			tx.Add("effect "+id, 1)
			return tx.Err()
		},
		Effects: func(t *testing.T) map[string]int {
			effects := map[string]int{}
			for k, v := range s.Values() {
				n, err := strconv.Atoi(v)
				if err != nil {
					t.Fatal(err)
				}
				effects[strings.TrimPrefix(k, "effect ")] = n
			}
			return effects
		},
		Reopen: func(*testing.T) onceward.Store[*memory.Tx] { return s },
	}
}
