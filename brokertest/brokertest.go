// Package brokertest checks that a source does what [onceward.Source] and [onceward.Session] say. The
// test of a source is one call of [Run], beside what only its broker can do.
package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/onceward/onceward"
)

// Harness tells the suite how to use a source. What the source can do it reads from its
// [onceward.Capabilities].
type Harness struct {
	// Open returns a new source with nothing in it. It frees what it needs in t.Cleanup, and fails t
	// if it can't.
	Open func(t *testing.T) Instance
	// Ordered: one session gets messages in the order they were sent.
	Ordered bool
	// Returns: what a closed session left unsettled, or what was requeued at once, comes before what
	// was not delivered yet.
	Returns bool
}

// Instance is one source and what the suite needs beside it.
type Instance struct {
	Source onceward.Source
	// Send adds messages, in order, and returns once the source has them.
	Send func(t *testing.T, msgs ...*onceward.Message)
	// End makes the source end after what was sent. Nil: it never ends.
	End func(t *testing.T)
	// Dead returns the ids of the messages that are dead letters. Nil: the suite can't see them.
	Dead func(t *testing.T) []string
}

// Run runs the whole suite, each case in a subtest with a source of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range append(settleCases(), sessionCases()...) {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			in := h.Open(t)
			c.run(&env{T: t, ctx: ctx, h: h, in: in, can: in.Source.Capabilities()})
		})
	}
}

type testCase struct {
	name string
	run  func(*env)
}
