// Package leak finds goroutines that a test has left behind.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long a goroutine may take to end after its test.
const patience = 5 * time.Second

// Check runs the tests of a package, from its TestMain, and exits; with status 1 if they leave
// goroutines behind.
func Check(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := await(nil); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// Verify makes tb fail if it leaves goroutines behind that were not there when Verify was called.
// Call it first, so that it looks after every other cleanup. It does not suit parallel tests.
func Verify(tb testing.TB) {
	tb.Helper()
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[id(g)] = true
	}
	tb.Cleanup(func() {
		if left := await(before); len(left) > 0 {
			tb.Errorf("%d goroutines were left behind:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

// await gives goroutines time to end, and returns the stacks of those that have not.
func await(before map[string]bool) []string {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		var left []string
		for _, g := range goroutines() {
			if !before[id(g)] && !ours(g) {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// goroutines returns the stacks of all goroutines but this one.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Split(strings.TrimSpace(string(buf[:n])), "\n\n")[1:]
		}
		buf = make([]byte, 2*len(buf))
	}
}

// id is the goroutine's number, from "goroutine 7 [running]:".
func id(stack string) string {
	n, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
	return n
}

// ours reports whether a goroutine belongs to the test binary itself.
func ours(stack string) bool {
	for _, f := range []string{
		"testing.(*T).Run(", "testing.(*M).", "testing.tRunner.func", "testing.runFuzzing(", "os/signal.signal_recv", "os/signal.loop",
		"runtime.ensureSigM", "runtime/trace.Start.func", "runtime.ReadTrace",
	} {
		if strings.Contains(stack, f) {
			return true
		}
	}
	return false
}
