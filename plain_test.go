package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func atMostOnce(t *testing.T, src onceward.Source, h onceward.Handler, c onceward.Config) *onceward.Consumer {
	t.Helper()
	c.Logger = quiet
	co, err := onceward.AtMostOnce("c", src, h, &c)
	if err != nil {
		t.Fatal(err)
	}
	return co
}

func atLeastOnce(t *testing.T, src onceward.Source, h onceward.Handler, c onceward.Config) *onceward.Consumer {
	t.Helper()
	c.Logger = quiet
	co, err := onceward.AtLeastOnce("c", src, h, &c)
	if err != nil {
		t.Fatal(err)
	}
	return co
}

// starts counts the starts of handlers by message id.
type starts struct {
	mu sync.Mutex
	of map[string]int
}

func (s *starts) add(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[id]++
	return s.of[id]
}

func (s *starts) get(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[id]
}

func TestAtMostOnceNeverHandlesTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := memory.NewSource(msgs("m", 60)...)
		n := 0
		src := &source{Source: inner, settle: func(ss []onceward.Settlement) error {
			if n++; n%2 == 1 && n < 20 {
				return errors.New("channel closed")
			}
			return nil
		}}
		var runs starts
		h := func(_ ctx, d *onceward.Delivery) error {
			runs.add(d.ID)
			switch d.ID {
			case "m3":
				return errBad
			case "m4":
				panic("bad")
			}
			return nil
		}
		c := atMostOnce(t, src, h, onceward.Config{MaxBatch: 7})
		l := start(t, c)
		until(t, 5*time.Minute, "all to be settled", func() bool { return inner.Pending() == 0 })
		pass(time.Minute)
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		for _, id := range idsOf(msgs("m", 60)) {
			if n := runs.get(id); n != 1 {
				t.Errorf("%s was handled %d times", id, n)
			}
		}
		if n := c.Stats(); n.Processed != 60 || n.Failed != 2 || n.GivenBack == 0 {
			t.Errorf("%+v", n)
		}
	})
}

// What is settled is confirmed before the handler starts.
func TestAtMostOnceSettlesFirst(t *testing.T) {
	src := memory.Messages(msgs("m", 5)...)
	h := func(context.Context, *onceward.Delivery) error {
		if n := src.Pending(); n != 0 {
			t.Errorf("%d are not settled when a handler starts", n)
		}
		return nil
	}
	run(t, atMostOnce(t, src, h, onceward.Config{}))
}

func TestAtLeastOnceWithTheSourcesOwnMeans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := memory.NewSource(msgs("m", 10)...)
		var runs starts
		h := func(_ ctx, d *onceward.Delivery) error {
			if n := runs.add(d.ID); n != d.Attempt {
				t.Errorf("start %d of %s is called attempt %d", n, d.ID, d.Attempt)
			}
			switch {
			case d.ID == "m3" && d.Attempt < 3, d.ID == "m5":
				return fmt.Errorf("attempt %d", d.Attempt)
			case d.ID == "m6":
				return onceward.Permanent(errBad)
			}
			return nil
		}
		c := atLeastOnce(t, src, h, onceward.Config{Attempts: 4, Backoff: every(10 * time.Second)})
		began := time.Now()
		l := start(t, c)
		until(t, time.Second, "the good ones", func() bool { return c.Stats().Processed == 7 })
		until(t, time.Minute, "all to be settled", func() bool { return src.Pending() == 0 })
		if took := time.Since(began); took < 30*time.Second {
			t.Errorf("four attempts took %v", took)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if runs.get("m3") != 3 || runs.get("m5") != 4 || runs.get("m6") != 1 {
			t.Errorf("starts: %v", runs.of)
		}
		dead := src.Dead()
		if len(dead) != 2 || dead[0].ID != "m6" || dead[1].ID != "m5" || dead[1].Reason.Error() != "attempt 4" {
			t.Errorf("dead: %v", dead)
		}
		if n := c.Stats(); n.Processed != 8 || n.Dead != 2 || n.Failed != 7 {
			t.Errorf("%+v", n)
		}
	})
}

func TestAtLeastOnceWithAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		src := memory.NewSource(append(msgs("m", 10), &onceward.Message{Body: []byte("no id")})...)
		var runs starts
		h := func(_ ctx, d *onceward.Delivery) error {
			if n := runs.add(d.ID); n != d.Attempt {
				t.Errorf("start %d of %s is called attempt %d", n, d.ID, d.Attempt)
			}
			switch {
			case d.ID == "m3" && d.Attempt < 3, d.ID == "m5", d.ID == "" && d.Attempt == 1:
				return fmt.Errorf("attempt %d", d.Attempt)
			case d.ID == "m6":
				panic("bad")
			case d.ID == "m7" && d.Attempt == 1: // its own trouble, not the queue's
				return onceward.ErrUnavailable
			}
			d.Emit("out", "x", msg("x"))
			return nil
		}
		c := atLeastOnce(t, src, h, onceward.Config{Attempts: 4, Backoff: every(10 * time.Second), Queue: s})
		l := start(t, c)
		until(t, time.Second, "the good ones", func() bool { return c.Stats().Processed == 6 })
		until(t, time.Minute, "the others", func() bool { return c.Stats().Processed == 9 && c.Stats().Dead == 2 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		for _, l := range checkParked(t, s, "m5 dead", "m6 dead") {
			if l.Attempts != 4 {
				t.Errorf("%s: %d attempts", l.Message.ID, l.Attempts)
			}
		}
		checkStats(t, c, onceward.Stats{Received: 11, Processed: 9, Dead: 2, Failed: 12, Retried: 10})
		if n := len(rows(t, s, "out")); n != 9 {
			t.Errorf("%d emitted", n)
		}
	})
}

// The queue can't take what a handler emitted: the message waits, and is charged nothing.
func TestEmitMeetsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFaulty()
		s.set(only("Put", 3, onceward.ErrUnavailable), nil)
		src := memory.NewSource(msg("a"))
		var runs starts
		h := func(_ ctx, d *onceward.Delivery) error {
			runs.add(d.ID)
			d.Emit("out", "x", msg("x"))
			return nil
		}
		c := atLeastOnce(t, src, h, onceward.Config{Attempts: 1, Queue: s})
		l := start(t, c)
		until(t, time.Minute, "it to be settled", func() bool { return src.Pending() == 0 })
		_ = l.stop()
		checkParked(t, s)
		checkStats(t, c, onceward.Stats{Received: 1, Processed: 1})
		if n := len(rows(t, s, "out")); n != 1 {
			t.Errorf("%d emitted in %d runs", n, runs.get("a"))
		}
	})
}

func TestEmitWithoutAQueue(t *testing.T) {
	src := memory.Messages(msg("a"))
	h := func(_ ctx, d *onceward.Delivery) error { d.Emit("out", "x", msg("x")); return nil }
	c := atLeastOnce(t, src, h, onceward.Config{})
	run(t, c)
	if dead := src.Dead(); len(dead) != 1 || !strings.Contains(dead[0].Reason.Error(), "Config.Queue") {
		t.Errorf("dead: %v", dead)
	}
}

// A delivery that may have killed the process is counted in the queue before its handler starts.
func TestAtLeastOnceQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		src := memory.NewSource(msgs("m", 10)...)
		kill, killed := context.WithCancel(t.Context())
		defer killed()
		// A life that ends in the middle: its session is given up unsettled.
		ss, err := src.Subscribe(kill, onceward.SubscribeParams{})
		if err != nil {
			t.Fatal(err)
		}
		if ins, err := ss.Receive(kill, 4); len(ins) != 4 || err != nil {
			t.Fatal(len(ins), err)
		}
		_ = ss.Close(kill)
		var c *onceward.Consumer
		h := func(_ ctx, d *onceward.Delivery) error {
			if d.Redelivered != (d.ID < "m4") {
				t.Errorf("%s: redelivered %v", d.ID, d.Redelivered)
			}
			if d.Redelivered {
				if ls := rows(t, s, onceward.Retries); ls[0].Message.ID != d.ID || ls[0].Attempts != 1 {
					t.Errorf("%s is not counted: %v", d.ID, ls)
				}
			}
			return nil
		}
		c = atLeastOnce(t, src, h, onceward.Config{Queue: s})
		l := start(t, c)
		until(t, time.Minute, "all to be done", func() bool { return c.Stats().Processed == 10 })
		_ = l.stop()
		checkParked(t, s)
		checkStats(t, c, onceward.Stats{Received: 10, Processed: 10, Retried: 4})
	})
}

// Whatever one handler does, its neighbours are done once.
func TestPlainHandlerNeverReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		release := make(chan struct{})
		h := func(_ ctx, d *onceward.Delivery) error {
			if d.ID == "m3" {
				<-release
				d.Emit("out", "x", msg("x"))
			}
			return nil
		}
		src := memory.NewSource(msgs("m", 10)...)
		c := atLeastOnce(t, src, h, onceward.Config{Queue: s, Attempts: 2, Timeout: time.Second, Backoff: every(0)})
		l := start(t, c)
		until(t, time.Minute, "all to be done", func() bool { return c.Stats().Processed == 9 && c.Stats().Dead == 1 })
		_ = l.stop()
		close(release)
		pass(time.Minute)
		checkParked(t, s, "m3 dead")
		if n := len(rows(t, s, "out")); n != 0 {
			t.Errorf("%d emitted", n)
		}
	})
}
