package onceward_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// keyed are n messages for each key, in turn: "k0/0", "k1/0", … "k0/1", ….
func keyed(keys, n int) []*onceward.Message {
	var ms []*onceward.Message
	for i := range n {
		for k := range keys {
			m := msg(fmt.Sprintf("k%d/%d", k, i))
			m.Key = fmt.Sprintf("k%d", k)
			ms = append(ms, m)
		}
	}
	return ms
}

// appendEffect keeps the order of effects per key.
func appendEffect(tx *memory.Tx, d *onceward.Delivery) {
	v, _ := tx.Get("order of " + d.Key)
	tx.Put("order of "+d.Key, v+" "+d.ID)
}

func checkOrder(t *testing.T, s *memory.Store, keys, n int) {
	t.Helper()
	for k := range keys {
		var want strings.Builder
		for i := range n {
			fmt.Fprintf(&want, " k%d/%d", k, i)
		}
		if v, _ := s.Value(fmt.Sprintf("order of k%d", k)); v != want.String() {
			t.Errorf("k%d:%s\nwant%s", k, v, want.String())
		}
	}
}

func TestKeepOrder(t *testing.T) {
	for _, cfg := range []onceward.Config{{}, {MaxBatch: 1}, {Lanes: 3, MaxBatch: 7}} {
		for _, attempts := range []int{1, 2} { // from which on k1/2 succeeds
			t.Run(fmt.Sprint(cfg.Lanes, cfg.MaxBatch, attempts), func(t *testing.T) {
				bubble(t, func(t *testing.T) { keepOrder(t, cfg, attempts) })
			})
		}
	}
}

func keepOrder(t *testing.T, cfg onceward.Config, failures int) {
	s := memory.NewStore()
	var mu sync.Mutex
	at := map[string]time.Time{}
	h := func(_ ctx, tx *memory.Tx, d *onceward.Delivery) error {
		if d.ID == "k1/2" && d.Attempt <= failures {
			return errBad
		}
		if want := map[bool]int{true: failures + 1, false: 1}[d.ID == "k1/2"]; d.Attempt != want {
			t.Errorf("%s has attempt %d", d.ID, d.Attempt)
		}
		appendEffect(tx, d)
		mu.Lock()
		defer mu.Unlock()
		at[d.ID] = time.Now()
		return nil
	}
	cfg.KeepOrder, cfg.Attempts, cfg.Backoff = true, failures+1, every(10*time.Second)
	src := memory.NewSource(keyed(4, 20)...)
	c := consumer(t, "c", src, s, h, cfg)
	began := time.Now()
	l := start(t, c)
	until(t, 5*time.Minute, "all to be done", func() bool { return c.Stats().Processed == 80 })
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	checkOrder(t, s, 4, 20)
	checkParked(t, s)
	mu.Lock()
	defer mu.Unlock()
	if took := at["k2/19"].Sub(began); took > time.Second {
		t.Errorf("another key was done after %v", took)
	}
	if took := at["k1/3"].Sub(began); took < time.Duration(failures)*10*time.Second {
		t.Errorf("the next of the key was done after %v already", took)
	}
}

func TestDeadLetterHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(_ ctx, tx *memory.Tx, d *onceward.Delivery) error {
			if d.ID == "k1/2" || d.ID == "k1/5" {
				return errBad
			}
			appendEffect(tx, d)
			return nil
		}
		src := memory.NewSource(keyed(3, 10)...)
		c := consumer(t, "c", src, s, h, onceward.Config{KeepOrder: true, Attempts: 3, Backoff: every(time.Second)})
		l := start(t, c)
		until(t, 5*time.Minute, "all to be done", func() bool { return c.Stats().Processed == 28 })
		late := msg("k1/10")
		late.Key = "k1"
		src.Send(late)
		until(t, time.Second, "a later one of the key", func() bool { return c.Stats().Processed == 29 })
		_ = l.stop()
		checkOrder(t, s, 1, 10)
		if v, _ := s.Value("order of k1"); v != " k1/0 k1/1 k1/3 k1/4 k1/6 k1/7 k1/8 k1/9 k1/10" {
			t.Errorf("k1:%s", v)
		}
		checkParked(t, s, "k1/2 dead", "k1/5 dead")
	})
}

// One attempt is all there is: those that wait behind a message of their key still have theirs.
func TestKeepOrderWithOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(_ ctx, tx *memory.Tx, d *onceward.Delivery) error { appendEffect(tx, d); return nil }
		// The first one waits from an earlier life.
		fails := func(ctx, *memory.Tx, *onceward.Delivery) error { return errBad }
		ms := keyed(1, 5)
		src := memory.NewSource(ms[0])
		c := consumer(t, "c", src, s, fails, onceward.Config{KeepOrder: true, Backoff: every(10 * time.Second)})
		l := start(t, c)
		until(t, time.Second, "the first to wait", func() bool { return c.Stats().Waiting == 1 })
		_ = l.stop()
		src.Send(ms[1:]...)
		c = consumer(t, "c", src, s, h, onceward.Config{KeepOrder: true, Attempts: 2})
		l = start(t, c)
		until(t, time.Minute, "all to be done", func() bool { return c.Stats().Processed == 5 })
		_ = l.stop()
		checkOrder(t, s, 1, 5)
		checkStats(t, c, onceward.Stats{Received: 4, WaitingAtStart: 1, Processed: 5, Retried: 5})
	})
}

func TestKeysAndIDsShareLanes(t *testing.T) {
	s := memory.NewStore()
	var mu sync.Mutex
	active := map[string]int{}
	enter := func(k string, by int) {
		mu.Lock()
		defer mu.Unlock()
		if active[k] += by; active[k] > 1 {
			t.Errorf("%s runs twice at once", k)
		}
	}
	h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
		k := d.Key
		if k == "" {
			k = d.ID
		}
		enter(k, 1)
		defer enter(k, -1)
		spin(500)
		if d.Key != "" {
			appendEffect(tx, d)
		}
		return effect(ctx, tx, d)
	}
	ms := keyed(9, 40)
	ms = append(ms, append(msgs("m", 50), msgs("m", 50)...)...)
	c := consumer(t, "c", memory.Messages(ms...), s, h, onceward.Config{Lanes: 4, MaxBatch: 5})
	run(t, c)
	checkOrder(t, s, 9, 40)
	checkStats(t, c, onceward.Stats{Received: 460, Processed: 410, Duplicates: 50})
}

// Without KeepOrder a key flows on past its retry, and an empty key is never held up.
func TestOrderNotKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, keep := range []bool{false, true} {
			s := memory.NewStore()
			h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
				if d.ID == "m0" && d.Attempt == 1 {
					return errBad
				}
				return effect(ctx, tx, d)
			}
			ms := msgs("m", 5)
			if !keep {
				for _, m := range ms {
					m.Key = "k"
				}
			}
			c := consumer(t, "c", memory.NewSource(ms...), s, h, onceward.Config{KeepOrder: keep, Backoff: every(time.Minute)})
			l := start(t, c)
			until(t, time.Second, "the others", func() bool { return c.Stats().Processed == 4 })
			until(t, 2*time.Minute, "the retry", func() bool { return c.Stats().Processed == 5 })
			_ = l.stop()
			checkEffects(t, s, idsOf(ms)...)
		}
	})
}
