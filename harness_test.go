package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/leak"
	"github.com/onceward/onceward/memory"
)

func TestMain(m *testing.M) { leak.Check(m) }

// faulty is an in-process store whose operations can be made to fail: before sees each operation
// first, and its error is what the operation returns without having done anything; after sees it when
// it is done, and its error replaces the result.
type faulty struct {
	*memory.Store
	mu            sync.Mutex
	before, after func(op string) error
}

func newFaulty() *faulty { return &faulty{Store: memory.NewStore()} }

func (f *faulty) set(before, after func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faulty) do(op string, fn func() error) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	if err := fn(); err != nil {
		return err
	}
	if after != nil {
		if err := after(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return nil
}

func (f *faulty) InTx(ctx context.Context, fn func(ctx context.Context, tx *memory.Tx) error) error {
	return f.do("InTx", func() error {
		return f.Store.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			if err := fn(ctx, tx); err != nil {
				return err
			}
			return f.do("commit", func() error { return nil })
		})
	})
}

func (f *faulty) Ready(ctx context.Context) error {
	return f.do("Ready", func() error { return f.Store.Ready(ctx) })
}

func (f *faulty) Claim(ctx context.Context, tx *memory.Tx, c string, rs []onceward.Record) (found []onceward.Found, err error) {
	err = f.do("Claim", func() error { found, err = f.Store.Claim(ctx, tx, c, rs); return err })
	return found, err
}

func (f *faulty) Park(ctx context.Context, c string, ps []onceward.Parking) (found []onceward.Found, err error) {
	err = f.do("Park", func() error { found, err = f.Store.Park(ctx, c, ps); return err })
	return found, err
}

func (f *faulty) Attempt(ctx context.Context, c string, r onceward.Record) (n int, err error) {
	err = f.do("Attempt", func() error { n, err = f.Store.Attempt(ctx, c, r); return err })
	return n, err
}

func (f *faulty) Start(ctx context.Context, r onceward.Row) (n int, err error) {
	err = f.do("Start", func() error { n, err = f.Store.Start(ctx, r); return err })
	return n, err
}

func (f *faulty) Lease(ctx context.Context, p onceward.LeaseParams) (ls []onceward.Leased, err error) {
	err = f.do("Lease", func() error { ls, err = f.Store.Lease(ctx, p); return err })
	return ls, err
}

func (f *faulty) Finish(ctx context.Context, os ...onceward.Outcome) error {
	return f.do("Finish", func() error { return f.Store.Finish(ctx, os...) })
}

func (f *faulty) Put(ctx context.Context, es ...onceward.Entry) error {
	return f.do("Put", func() error { return f.Store.Put(ctx, es...) })
}

// only makes err of one operation, the first n times; negative: always.
func only(op string, n int, err error) func(string) error {
	var mu sync.Mutex
	return func(o string) error {
		mu.Lock()
		defer mu.Unlock()
		if o != op || n == 0 {
			return nil
		}
		n--
		return err
	}
}

type handler = onceward.TxHandler[*memory.Tx]

// effect counts in the store how often a message took effect.
func effect(_ context.Context, tx *memory.Tx, d *onceward.Delivery) error {
	tx.Add(effectOf(d.ID), 1)
	return nil
}

func effectOf(id string) string { return "effect of " + id }

func msg(id string) *onceward.Message {
	return &onceward.Message{ID: id, Body: []byte("body of " + id)}
}

// msgs are n messages with different ids, p0 and so on.
func msgs(p string, n int) []*onceward.Message {
	ms := make([]*onceward.Message, n)
	for i := range ms {
		ms[i] = msg(fmt.Sprint(p, i))
	}
	return ms
}

var quiet = slog.New(slog.DiscardHandler)

// every backs off by the same time after each attempt.
func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func consumer(t *testing.T, name string, src onceward.Source, s onceward.Store[*memory.Tx], h handler, c onceward.Config) *onceward.Consumer {
	t.Helper()
	if c.Logger == nil {
		c.Logger = quiet
	}
	co, err := onceward.EffectivelyOnce(name, src, s, h, &c)
	if err != nil {
		t.Fatal(err)
	}
	return co
}

// life is a consumer, or several, at work.
type life struct {
	t    *testing.T
	end  context.CancelFunc
	done chan error
	cs   []*onceward.Consumer
}

func start(t *testing.T, cs ...*onceward.Consumer) *life {
	ctx, end := context.WithCancel(t.Context())
	l := &life{t, end, make(chan error, 1), cs}
	go func() {
		rs := make([]onceward.Runner, len(cs))
		for i, c := range cs {
			rs[i] = c
		}
		l.done <- onceward.Run(ctx, rs...)
	}()
	return l
}

// wait waits until the consumers have ended by themselves.
func (l *life) wait() error {
	l.t.Helper()
	select {
	case err := <-l.done:
		l.end()
		for _, c := range l.cs {
			checkSums(l.t, c)
		}
		return err
	case <-time.After(6 * time.Hour): // of a bubble's time; outside, go test's own time-out comes first
		l.t.Fatal("the consumers did not come to an end")
		return nil
	}
}

func (l *life) stop() error {
	l.t.Helper()
	l.end()
	return l.wait()
}

// run runs consumers of a finite source to their end.
func run(t *testing.T, cs ...*onceward.Consumer) {
	t.Helper()
	if err := start(t, cs...).wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// checkSums checks what a consumer that has stopped says about itself.
func checkSums(t *testing.T, c *onceward.Consumer) {
	t.Helper()
	s := c.Stats()
	if s.State != onceward.Stopped {
		t.Errorf("%s is %v after Run", c.Name(), s.State)
	}
	if in, out := s.Received+s.WaitingAtStart, s.Processed+s.Duplicates+s.Skipped+s.Dead+s.Waiting+s.GivenBack; in != out {
		t.Errorf("the sums of %s differ: %d came, %d went: %+v", c.Name(), in, out, s)
	}
}

// checkEffects checks that each of the ids, and nothing else, took effect once.
func checkEffects(t *testing.T, s *memory.Store, ids ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, id := range ids {
		want[effectOf(id)] = true
		if v, _ := s.Value(effectOf(id)); v != "1" {
			t.Errorf("%q took effect %q times, want 1", id, v)
		}
	}
	for k, v := range s.Values() {
		if strings.HasPrefix(k, effectOf("")) && !want[k] {
			t.Errorf("%s: %s, want none", k, v)
		}
	}
}

func idsOf(ms []*onceward.Message) []string {
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	return ids
}

// rows lists a queue.
func rows(t *testing.T, s onceward.Inspector, queue string) []onceward.Leased {
	t.Helper()
	ls, err := s.List(context.Background(), onceward.Filter{Queue: queue, Limit: 100000})
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// checkParked checks which messages are put aside: "id waiting" or "id dead" each.
func checkParked(t *testing.T, s onceward.Inspector, want ...string) []onceward.Leased {
	t.Helper()
	ls := rows(t, s, onceward.Retries)
	var got []string
	for _, l := range ls {
		got = append(got, l.Message.ID+" "+l.State.String())
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("put aside: %q, want %q", got, want)
	}
	return ls
}

func checkStats(t *testing.T, c *onceward.Consumer, want onceward.Stats) {
	t.Helper()
	want.State = onceward.Stopped
	if got := c.Stats(); got != want {
		t.Errorf("%s:\n got %+v\nwant %+v", c.Name(), got, want)
	}
}

// bubble runs a test in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// until lets time go by in a bubble until something is so.
func until(t *testing.T, most time.Duration, what string, so func() bool) {
	t.Helper()
	step := min(max(most/2000, 10*time.Millisecond), time.Second)
	for began := time.Now(); !so(); pass(step) {
		if time.Since(began) > most {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}

// ctx shortens the signatures of handlers.
type ctx = context.Context

var errBad = errors.New("bad")

// source is a source whose sessions can be made to fail.
type source struct {
	*memory.Source
	mu        sync.Mutex
	subscribe func() error
	receive   func() error
	settle    func(ss []onceward.Settlement) error // an error: nothing is settled
	settled   []onceward.Settlement
	caps      *onceward.Capabilities
}

func (s *source) Capabilities() onceward.Capabilities {
	if s.caps != nil {
		return *s.caps
	}
	return s.Source.Capabilities()
}

// call calls one of the functions, of which one runs at a time.
func (s *source) call(f func() error) error {
	if f == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

func (s *source) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	if err := s.call(s.subscribe); err != nil {
		return nil, err
	}
	ss, err := s.Source.Subscribe(ctx, p)
	return &session{ss, s}, err
}

type session struct {
	onceward.Session
	s *source
}

func (ss *session) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if err := ss.s.call(ss.s.receive); err != nil {
		return nil, err
	}
	return ss.Session.Receive(ctx, most)
}

func (ss *session) Settle(ctx context.Context, sets ...onceward.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := ss.s.call(func() error {
		if f := ss.s.settle; f != nil {
			if err := f(sets); err != nil {
				return err
			}
		}
		ss.s.settled = append(ss.s.settled, sets...)
		return nil
	})
	if err != nil {
		return err
	}
	return ss.Session.Settle(ctx, sets...)
}

func checkErrorIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}
