// Package crash makes every point of a consumer's life, at which its process could die or what it
// depends on could fail, a call of a function: of a test that lets the process die there, lets the
// call fail, or lets another consumer go first.
package crash

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/onceward/onceward"
)

// Step is called at every point. It may block, end the process, or return an error: then what the
// point stands before is not done, or the result of what it stands after is lost, and the caller
// gets the error.
//
// A point is named by the operation and "before" or "after", with the messages it is about, if any:
// "claim before a,b". The transaction has the points "begin before", "begin after", "commit before",
// "commit after" and "rollback after".
type Step func(ctx context.Context, point string) error

// Before and after an operation.
const (
	Before = " before"
	After  = " after"
)

// Idle reports whether a point is one that a consumer with nothing to do passes again and again, and
// how often depends on time: a look for work. A death there is one after the point before it.
func Idle(point string) bool {
	return strings.HasPrefix(point, "lease"+Before) || strings.HasPrefix(point, "receive"+Before)
}

// around calls do between its two points.
func (s Step) around(ctx context.Context, name, about string, do func() error) error {
	if about != "" {
		about = " " + about
	}
	if err := s(ctx, name+Before+about); err != nil {
		return err
	}
	err := do()
	return errors.Join(s(ctx, name+After+about), err)
}

// ErrDead is what a process gets from everything after its death.
var ErrDead = errors.New("crash: the process is dead")

// Process is a life that ends at a point: every later step fails at once.
type Process struct {
	dead atomic.Bool
	died chan struct{}
}

// NewProcess returns a process that lives.
func NewProcess() *Process { return &Process{died: make(chan struct{})} }

// Kill ends the process. It may be called again.
func (p *Process) Kill() {
	if p.dead.CompareAndSwap(false, true) {
		close(p.died)
	}
}

// Dead reports whether the process has ended.
func (p *Process) Dead() bool { return p.dead.Load() }

// Died is closed at the process's end.
func (p *Process) Died() <-chan struct{} { return p.died }

// Step makes s the steps of the process: they fail with [ErrDead] once it is dead, also the one in
// which it died.
func (p *Process) Step(s Step) Step {
	return func(ctx context.Context, point string) error {
		if p.Dead() {
			return ErrDead
		}
		err := s(ctx, point)
		if p.Dead() {
			return ErrDead
		}
		return err
	}
}

// Handler wraps a handler for messages without a transaction.
func Handler(h onceward.Handler, s Step) onceward.Handler {
	return func(ctx context.Context, d *onceward.Delivery) error {
		return s.around(ctx, "handle", d.ID, func() error { return h(ctx, d) })
	}
}

// TxHandler wraps a handler with a transaction.
func TxHandler[TTx any](h onceward.TxHandler[TTx], s Step) onceward.TxHandler[TTx] {
	return func(ctx context.Context, tx TTx, d *onceward.Delivery) error {
		return s.around(ctx, "handle", d.ID, func() error { return h(ctx, tx, d) })
	}
}

// TxBatchHandler wraps a handler of batches.
func TxBatchHandler[TTx any](h onceward.TxBatchHandler[TTx], s Step) onceward.TxBatchHandler[TTx] {
	return func(ctx context.Context, tx TTx, ds []*onceward.Delivery) error {
		return s.around(ctx, "handle", names(ds, func(d *onceward.Delivery) string { return d.ID }), func() error { return h(ctx, tx, ds) })
	}
}

func names[T any](ts []T, name func(T) string) string {
	all := make([]string, len(ts))
	for i, t := range ts {
		all[i] = name(t)
	}
	return strings.Join(all, ",")
}
