package onceward_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// A settlement that fails ends the session: what it held comes again, and is a duplicate.
func TestSettleFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		inner := memory.NewSource(msgs("m", 50)...)
		var subscriptions, fails atomic.Int32
		fails.Store(3)
		src := &source{
			Source:    inner,
			subscribe: func() error { subscriptions.Add(1); return nil },
			settle: func([]onceward.Settlement) error {
				if fails.Add(-1) >= 0 {
					return errors.New("channel closed")
				}
				return nil
			},
		}
		c := consumer(t, "c", src, s, effect, onceward.Config{MaxBatch: 10})
		l := start(t, c)
		until(t, time.Minute, "all to be settled", func() bool { return inner.Pending() == 0 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s, idsOf(msgs("m", 50))...)
		if n := c.Stats(); n.Processed != 50 || n.Duplicates == 0 || subscriptions.Load() < 2 {
			t.Errorf("%+v, %d subscriptions", n, subscriptions.Load())
		}
	})
}

// A stale settlement is nobody's fault: the session goes on.
func TestStaleSettlement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		inner := memory.NewSource(msgs("m", 5)...)
		var subscriptions atomic.Int32
		stale := true
		src := &source{
			Source:    inner,
			subscribe: func() error { subscriptions.Add(1); return nil },
			settle: func([]onceward.Settlement) error {
				if stale {
					stale = false
					return fmt.Errorf("partition moved: %w", onceward.ErrStale)
				}
				return nil
			},
		}
		c := consumer(t, "c", src, s, effect, onceward.Config{})
		l := start(t, c)
		pass(time.Second)
		inner.Send(msg("n"))
		until(t, time.Minute, "the next to be settled", func() bool { return c.Stats().Processed == 6 })
		_ = l.stop()
		if n := subscriptions.Load(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		checkEffects(t, s, append(idsOf(msgs("m", 5)), "n")...)
	})
}

func TestSourceAway(t *testing.T) {
	for name, fail := range map[string]func(src *source, f func() error){
		"receive":   func(src *source, f func() error) { src.receive = f },
		"subscribe": func(src *source, f func() error) { src.subscribe = f },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memory.NewStore()
				inner := memory.NewSource(msgs("m", 5)...)
				src := &source{Source: inner}
				var looks []time.Time
				var back atomic.Bool
				fail(src, func() error {
					if back.Load() {
						return nil
					}
					looks = append(looks, time.Now())
					return errors.New("no route to host")
				})
				c := consumer(t, "c", src, s, effect, onceward.Config{})
				l := start(t, c)
				pass(5 * time.Minute)
				if st := c.Stats().State; st != onceward.Paused {
					t.Errorf("%v, want paused", st)
				}
				if n := len(looks); n < 50 || n > 100 || looks[n-1].Sub(looks[n-2]) > 6*time.Second || looks[1].Sub(looks[0]) > time.Second {
					t.Errorf("%d looks: %v", n, looks)
				}
				back.Store(true)
				until(t, 10*time.Second, "all to be done", func() bool { return c.Stats().Processed == 5 })
				if st := c.Stats().State; st != onceward.Running {
					t.Errorf("%v, want running", st)
				}
				if err := l.stop(); err != nil {
					t.Error(err)
				}
				checkEffects(t, s, idsOf(msgs("m", 5))...)
			})
		})
	}
}

func TestPermanentSourceError(t *testing.T) {
	gone := onceward.Permanent(fmt.Errorf("the queue was deleted: %w", errBad))
	for _, src := range []*source{
		{Source: memory.NewSource(), subscribe: func() error { return gone }},
		{Source: memory.NewSource(), receive: func() error { return gone }},
	} {
		c := consumer(t, "c", src, memory.NewStore(), effect, onceward.Config{})
		other := consumer(t, "other", memory.NewSource(), memory.NewStore(), effect, onceward.Config{})
		checkErrorIs(t, start(t, c, other).wait(), errBad)
	}
}

// When a source has ended, what is due is run, and the rest waits for another life.
func TestSourceEndsWithRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			<-time.After(time.Second)
			if d.Attempt < 3 {
				if d.ID == "late" {
					return onceward.RetryAfter(errBad, time.Hour)
				}
				return errBad
			}
			return effect(ctx, tx, d)
		}
		ms := append(msgs("m", 20), msg("late"))
		src := memory.Messages(ms...)
		c := consumer(t, "c", src, s, h, onceward.Config{Backoff: every(0), Grace: 5 * time.Second})
		run(t, c) // takes longer than the grace time, which is for a shutdown
		checkEffects(t, s, idsOf(ms[:20])...)
		checkParked(t, s, "late waiting")
		if n := c.Stats(); n.Processed != 20 || n.Waiting != 1 {
			t.Errorf("%+v", n)
		}
		// It is due in the next life.
		pass(time.Hour)
		h2 := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			if d.Attempt != 2 {
				t.Errorf("attempt %d", d.Attempt)
			}
			return effect(ctx, tx, d)
		}
		c = consumer(t, "c", memory.Messages(), s, h2, onceward.Config{})
		run(t, c)
		checkParked(t, s)
		checkStats(t, c, onceward.Stats{WaitingAtStart: 1, Processed: 1, Retried: 1})
	})
}

// A shutdown while what is due after the source's end is being run stops that too.
func TestStopAfterTheSourcesEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(ctx, *memory.Tx, *onceward.Delivery) error { <-time.After(time.Second); return errBad }
		c := consumer(t, "c", memory.Messages(msgs("m", 5)...), s, h, onceward.Config{Attempts: onceward.Unlimited, Backoff: every(0)})
		l := start(t, c)
		pass(time.Minute)
		began := time.Now()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %v to stop", took)
		}
		if n := c.Stats(); n.Waiting != 5 || len(rows(t, s, onceward.Retries)) != 5 {
			t.Errorf("%+v", n)
		}
	})
}

// big sends n bodies of so many bytes, each made when it is received, and keeps count of those that
// are not settled.
type big struct {
	*memory.Source
	bytes, most int64
	held        atomic.Int64
}

func (b *big) Subscribe(ctx ctx, p onceward.SubscribeParams) (onceward.Session, error) {
	ss, err := b.Source.Subscribe(ctx, p)
	return &bigSession{ss, b}, err
}

type bigSession struct {
	onceward.Session
	b *big
}

func (ss *bigSession) Receive(ctx ctx, most int) ([]onceward.Incoming, error) {
	most = min(most, max(1, int(16<<20/ss.b.bytes))) // as the contract says: fewer where bodies are large
	ins, err := ss.Session.Receive(ctx, most)
	for i := range ins {
		ins[i].Body = make([]byte, ss.b.bytes)
	}
	if held := ss.b.held.Add(int64(len(ins)) * ss.b.bytes); held > ss.b.most {
		ss.b.most = held
	}
	return ins, err
}

func (ss *bigSession) Settle(ctx ctx, sets ...onceward.Settlement) error {
	ss.b.held.Add(-int64(len(sets)) * ss.b.bytes)
	return ss.Session.Settle(ctx, sets...)
}

func TestMemoryIsBounded(t *testing.T) {
	for _, tt := range []struct{ n, bytes, most int64 }{
		{300, 1 << 20, 100 << 20},
		{4, 100 << 20, 200 << 20},
	} {
		bubble(t, func(t *testing.T) {
			s := memory.NewStore()
			src := &big{Source: memory.Messages(msgs("m", int(tt.n))...), bytes: tt.bytes}
			h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
				if int64(len(d.Body)) != tt.bytes {
					t.Errorf("%d bytes", len(d.Body))
				}
				<-time.After(100 * time.Millisecond)
				return effect(ctx, tx, d)
			}
			c := consumer(t, "c", src, s, h, onceward.Config{Lanes: 2, Mismatch: onceward.MismatchDuplicate})
			run(t, c)
			checkEffects(t, s, idsOf(msgs("m", int(tt.n)))...)
			if src.most > tt.most {
				t.Errorf("held %d MB at once, want at most %d", src.most>>20, tt.most>>20)
			}
		})
		runtime.GC()
	}
}

// Messages that are always due for another attempt do not keep fresh ones from being done.
func TestRetriesLeaveRoomForOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			<-time.After(100 * time.Millisecond)
			if d.ID < "n" {
				return errBad
			}
			return effect(ctx, tx, d)
		}
		src := memory.NewSource(msgs("m", 5)...)
		c := consumer(t, "c", src, s, h, onceward.Config{Attempts: onceward.Unlimited, Backoff: every(0), MaxBatch: 1})
		l := start(t, c)
		until(t, time.Minute, "all to wait", func() bool { return c.Stats().Waiting == 5 })
		src.Send(msgs("n", 20)...)
		until(t, 6*time.Second, "the fresh ones to be done", func() bool { return c.Stats().Processed == 20 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}
