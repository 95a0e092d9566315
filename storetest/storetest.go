// Package storetest checks that a store does what [onceward.Store] says. The test of a store is one
// call of [Run], beside what only its engine can do:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness[*sql.Tx]{Open: open, Concurrent: true, MaxWait: 2 * time.Second})
//	}
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/onceward/onceward"
)

// Harness tells the suite how to use a store whose transactions are of type TTx.
type Harness[TTx any] struct {
	// Open returns a new, empty store, ready to use. It frees what it needs in t.Cleanup, and fails
	// t if it can't.
	Open func(t *testing.T) Instance[TTx]
	// Ends are the ways in which a handler can try to end its transaction in this engine: by the
	// handle's own methods, by SQL, by a statement that commits implicitly.
	Ends []Ending[TTx]
	// Concurrent: two transactions that write can be open at once. Without it the suite leaves out
	// what needs two.
	Concurrent bool
	// MaxWait is how long a claim waits at most for a message in another transaction's hands. Keep
	// it short in tests, 500 ms for example, but not under 200 ms.
	MaxWait time.Duration
}

// Instance is one store and what the suite needs beside it.
type Instance[TTx any] struct {
	Store onceward.Store[TTx]
	// Effect adds a row with this id to a table of the suite's own, in tx; ids are short ASCII, and
	// one id may come several times. It returns the error of the statement.
	Effect func(ctx context.Context, tx TTx, id string) error
	// Effects returns how many rows of each id are committed.
	Effects func(t *testing.T) map[string]int
	// Reopen returns another store on the same data, as another process would have. Nil leaves out
	// what needs it.
	Reopen func(t *testing.T) onceward.Store[TTx]
}

// Ending is a way in which a handler can try to end its transaction.
type Ending[TTx any] struct {
	Name string
	// End tries it. Its error, if the attempt is refused, is not looked at: the store must find out
	// all the same.
	End func(ctx context.Context, tx TTx) error
}

// Run runs the whole suite, each case in a subtest with a store of its own.
func Run[TTx any](t *testing.T, h Harness[TTx]) {
	t.Helper()
	for _, topic := range []struct {
		name  string
		cases []testCase[TTx]
	}{
		{"claim", claimCases[TTx]()},
		{"twins", twinCases[TTx]()},
		{"tx", txCases[TTx]()},
		{"park", parkCases[TTx]()},
		{"held", heldCases[TTx]()},
		{"attempt", attemptCases[TTx]()},
		{"queue", queueCases[TTx]()},
		{"lease", leaseCases[TTx]()},
		{"append", appendCases[TTx]()},
		{"message", messageCases[TTx]()},
		{"inspect", inspectCases[TTx]()},
		{"explain", explainCases[TTx]()},
		{"position", positionCases[TTx]()},
		{"purge", purgeCases[TTx]()},
		{"model", modelCases[TTx]()},
	} {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.cases {
				t.Run(c.name, func(t *testing.T) { runCase(t, h, c) })
			}
		})
	}
}

type testCase[TTx any] struct {
	name       string
	run        func(*env[TTx])
	concurrent bool // needs two transactions at once
}

func runCase[TTx any](t *testing.T, h Harness[TTx], c testCase[TTx]) {
	if c.concurrent && !h.Concurrent {
		t.Skip("the store runs one transaction at a time")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in := h.Open(t)
	c.run(&env[TTx]{T: t, ctx: ctx, h: h, in: in, s: in.Store})
}
