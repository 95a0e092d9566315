package onceward_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

type txStore = onceward.Store[*memory.Tx]

// claimsOutside claims in a transaction of its own.
type claimsOutside struct{ txStore }

func (s claimsOutside) Claim(ctx context.Context, _ *memory.Tx, consumer string, rs []onceward.Record) (found []onceward.Found, err error) {
	err = s.InTx(ctx, func(ctx context.Context, tx *memory.Tx) (err error) {
		found, err = s.txStore.Claim(ctx, tx, consumer, rs)
		return err
	})
	return found, err
}

// looksFirst looks for a record, and inserts it at the end.
type looksFirst struct {
	txStore
	mu     *sync.Mutex
	looked map[*memory.Tx][]onceward.Record
}

func (s *looksFirst) Claim(ctx context.Context, tx *memory.Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	known, err := s.Recorded(ctx, consumer, rs)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]onceward.Found, len(rs))
	for i := range rs {
		if found[i] = onceward.Duplicate; !known[i] {
			found[i] = onceward.Fresh
		}
	}
	s.looked[tx] = append(s.looked[tx], rs...)
	return found, nil
}

func (s *looksFirst) InTx(ctx context.Context, fn func(context.Context, *memory.Tx) error) error {
	return s.txStore.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		s.mu.Lock()
		rs := s.looked[tx]
		s.mu.Unlock()
		_, err := s.txStore.Claim(ctx, tx, name, rs)
		return err
	})
}

// claimsAnything takes a message for fresh whatever is known of it.
type claimsAnything struct{ txStore }

func (s claimsAnything) Claim(ctx context.Context, tx *memory.Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	found, err := s.txStore.Claim(ctx, tx, consumer, rs)
	for i := range found {
		found[i] = onceward.Fresh
	}
	return found, err
}

// leavesRow leaves the row of a message that waited where it is.
type leavesRow struct{ txStore }

func (s leavesRow) Claim(ctx context.Context, tx *memory.Tx, consumer string, rs []onceward.Record) ([]onceward.Found, error) {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Row = nil
	}
	return s.txStore.Claim(ctx, tx, consumer, rs)
}

// parksBlindly puts messages aside without asking whether they are finished.
type parksBlindly struct{ txStore }

func (s parksBlindly) Park(ctx context.Context, consumer string, ps []onceward.Parking) ([]onceward.Found, error) {
	p := &ps[0]
	if p.Row != nil {
		return s.txStore.Park(ctx, consumer, ps)
	}
	e := onceward.Entry{
		Queue: onceward.Retries, Consumer: consumer, Message: p.Message, State: onceward.Waiting,
		Attempts: p.Attempts, Due: p.After, Reason: p.Reason, Origin: p.Origin,
	}
	if p.Dead {
		e.State = onceward.Dead
	}
	return []onceward.Found{onceward.Fresh}, s.Put(ctx, e)
}

// forgetsParked does not park at all.
type forgetsParked struct{ txStore }

func (forgetsParked) Park(_ context.Context, _ string, ps []onceward.Parking) ([]onceward.Found, error) {
	return []onceward.Found{onceward.Fresh}, nil
}

// believesCommits takes a commit that failed for one that did not.
type believesCommits struct{ txStore }

func (s believesCommits) InTx(ctx context.Context, fn func(context.Context, *memory.Tx) error) error {
	var failed error
	err := s.txStore.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		failed = fn(ctx, tx)
		return failed
	})
	if onceward.IsPermanent(failed) || err == nil {
		return err
	}
	return nil
}

// emitsOutside emits at once, whether the transaction commits or not.
type emitsOutside struct{ txStore }

func (s emitsOutside) Append(ctx context.Context, _ *memory.Tx, queue string, msgs ...*onceward.Message) error {
	for _, m := range msgs {
		if err := s.Put(ctx, onceward.Entry{Queue: queue, Message: *m, State: onceward.Waiting}); err != nil {
			return err
		}
	}
	return nil
}

// countsLate counts the start of a handler after it has returned: here, not at all if it does not.
type countsLate struct {
	txStore
	mu     *sync.Mutex
	counts map[string]int
}

func (s *countsLate) Attempt(_ context.Context, _ string, r onceward.Record) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[r.ID] + 1, nil
}

func (s *countsLate) returned(_ txStore, d *onceward.Delivery, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Redelivered && kind(d.ID) != "kill" {
		s.counts[onceward.StoredID(d.ID)]++
	}
	return err
}

// brokenSource has its sessions changed.
type brokenSource struct {
	onceward.Source
	session func(onceward.Session) onceward.Session
}

func (s *brokenSource) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	n, err := s.Source.Subscribe(ctx, p)
	if err != nil {
		return nil, err
	}
	return s.session(n), nil
}

// settlesFirst settles what it receives, before anything has come of it.
type settlesFirst struct{ onceward.Session }

func (n settlesFirst) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	in, err := n.Session.Receive(ctx, most)
	for i := range in {
		if err := n.Session.Settle(ctx, onceward.Settlement{Incoming: in[i], Verdict: onceward.Ack}); err != nil {
			return nil, err
		}
	}
	return in, err
}

func (settlesFirst) Settle(context.Context, ...onceward.Settlement) error { return nil }

// settlesLate reports what it is to settle as settled, and does so a while later.
type settlesLate struct {
	onceward.Session
	mu    *sync.Mutex
	later *[]onceward.Settlement
}

func (n settlesLate) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	n.flush(ctx)
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	in, err := n.Session.Receive(wait, most)
	if ctx.Err() == nil && wait.Err() != nil {
		return nil, nil
	}
	return in, err
}

func (n settlesLate) Settle(_ context.Context, ss ...onceward.Settlement) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	*n.later = append(*n.later, ss...)
	return nil
}

func (n settlesLate) flush(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.Session.Settle(ctx, *n.later...)
	*n.later = nil
}

func (n settlesLate) Close(ctx context.Context) error {
	n.flush(ctx)
	return n.Session.Close(ctx)
}

func first(n onceward.Session) onceward.Session { return settlesFirst{n} }
func late(n onceward.Session) onceward.Session {
	return settlesLate{n, &sync.Mutex{}, &[]onceward.Settlement{}}
}

func breakStore(f func(s txStore) txStore) *broken { return &broken{store: f} }

func breakSource(f func(n onceward.Session) onceward.Session) *broken {
	return &broken{source: func(s onceward.Source) onceward.Source { return &brokenSource{s, f} }}
}

// TestExplorerCatches makes sure that the explorer finds what it is there to find.
func TestExplorerCatches(t *testing.T) {
	lately := &countsLate{mu: &sync.Mutex{}, counts: map[string]int{}}
	for _, c := range []struct {
		name     string
		scenario string
		broken   *broken
	}{
		{"a claim outside the transaction", "effectively once, all good", breakStore(func(s txStore) txStore { return claimsOutside{s} })},
		{"a look instead of a claim", "two, effectively once, pairs", breakStore(func(s txStore) txStore {
			return &looksFirst{s, &sync.Mutex{}, map[*memory.Tx][]onceward.Record{}}
		})},
		{"no look at what is found", "effectively once", breakStore(func(s txStore) txStore { return claimsAnything{s} })},
		{"a waiting row that stays", "effectively once", breakStore(func(s txStore) txStore { return leavesRow{s} })},
		{"parking without a claim", "two, effectively once, twins", breakStore(func(s txStore) txStore { return parksBlindly{s} })},
		{"no parking", "effectively once", breakStore(func(s txStore) txStore { return forgetsParked{s} })},
		{"a commit that is taken for granted", "effectively once, all good", breakStore(func(s txStore) txStore { return believesCommits{s} })},
		{"emitting outside the transaction", "effectively once, all good", breakStore(func(s txStore) txStore { return emitsOutside{s} })},
		{"a start counted after the handler", "effectively once, it kills", &broken{
			store:   func(s txStore) txStore { return &countsLate{s, lately.mu, lately.counts} },
			handler: lately.returned,
		}},
		{"settling before the commit", "effectively once, all good", breakSource(first)},
		{"settling before the handler", "at least once", breakSource(first)},
		{"settling after the handler", "at most once", breakSource(late)},
	} {
		t.Run(c.name, func(t *testing.T) {
			sc := *named(t, c.scenario)
			sc.broken = c.broken
			x := &explorer{T: t, sc: &sc, wanted: true}
			x.deaths(500)
			if !x.done() {
				x.faults()
			}
			if !x.done() {
				x.switches(500, false)
			}
			if !x.done() {
				x.walks(500)
			}
			if x.caught == "" {
				t.Fatalf("not caught in %d executions", x.executions)
			}
			t.Logf("caught by execution %d: %s", x.executions, x.caught)
		})
	}
}

func named(t *testing.T, name string) *scenario {
	for _, sc := range append(scenarios(), several()...) {
		if sc.name == name {
			return sc
		}
	}
	t.Fatalf("no scenario %q", name)
	return nil
}
