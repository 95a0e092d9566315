package leak

import (
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Check(m) }

func TestFindsWhatIsLeftBehind(t *testing.T) {
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[id(g)] = true
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		<-stop
	}()
	var left []string
	for _, g := range goroutines() {
		if !before[id(g)] && !ours(g) {
			left = append(left, g)
		}
	}
	close(stop)
	<-stopped
	if len(left) != 1 || !strings.Contains(left[0], "TestFindsWhatIsLeftBehind") {
		t.Fatalf("found %q, want the goroutine of this test", left)
	}
	if left := await(before); len(left) != 0 {
		t.Fatalf("found %q after it had ended", left)
	}
}

func TestVerifyIsContentWithWhatEnds(t *testing.T) {
	Verify(t)
	done := make(chan struct{})
	go close(done)
	<-done
}
