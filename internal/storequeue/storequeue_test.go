package storequeue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/leak"
	"github.com/onceward/onceward/internal/storequeue"
	"github.com/onceward/onceward/memory"
)

func TestMain(m *testing.M) { leak.Check(m) }

func subscribe(t *testing.T, s *memory.Store, n int) onceward.Session {
	t.Helper()
	for i := range n {
		if err := s.Put(t.Context(), onceward.Entry{Queue: "q", Message: onceward.Message{ID: fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	ss, err := storequeue.New(s, "q").Subscribe(t.Context(), onceward.SubscribeParams{Prefetch: 10})
	if err != nil {
		t.Fatal(err)
	}
	return ss
}

func receive(t *testing.T, ss onceward.Session, n int) []onceward.Incoming {
	t.Helper()
	ins, err := ss.Receive(t.Context(), n)
	if err != nil || len(ins) != n {
		t.Fatalf("Receive = %d deliveries, %v, want %d", len(ins), err, n)
	}
	return ins
}

func TestCloseGivesBackWhatNoTransactionTook(t *testing.T) {
	s := memory.NewStore()
	ss := subscribe(t, s, 3)
	ins := receive(t, ss, 2)
	if err := s.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.Claim(ctx, tx, "c", []onceward.Record{{ID: ins[0].ID, Row: ins[0].Row}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := ss.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v, although a row is gone", err)
	}
	ls, err := s.List(t.Context(), onceward.Filter{Queue: "q", State: onceward.Waiting})
	if err != nil || len(ls) != 2 {
		t.Fatalf("%d rows wait, %v, want 2", len(ls), err)
	}
}

func TestALeaseThatRanOutIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewStore()
		ss := subscribe(t, s, 1)
		former := receive(t, ss, 1)[0]
		<-time.After(storequeue.LeaseFor + time.Second)
		present := receive(t, ss, 1)[0]
		if !present.Redelivered || *present.Row == *former.Row {
			t.Errorf("after its lease it came as %+v", present)
		}
		for in, want := range map[*onceward.Incoming]error{&former: onceward.ErrStale, &present: nil} {
			err := ss.Settle(t.Context(), onceward.Settlement{Incoming: *in, Verdict: onceward.Ack})
			if !errors.Is(err, want) {
				t.Errorf("Settle = %v, want %v", err, want)
			}
		}
		if err := ss.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestMoreRowsThanASessionRemembersComeOnce(t *testing.T) {
	s := memory.NewStore()
	const n = 3000
	ss := subscribe(t, s, n)
	seen := map[string]bool{}
	for range n / 100 {
		for _, in := range receive(t, ss, 100) {
			seen[in.ID] = true
		}
	}
	if len(seen) != n {
		t.Fatalf("%d messages came, want %d", len(seen), n)
	}
	if err := ss.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ls, err := s.List(t.Context(), onceward.Filter{Queue: "q", State: onceward.Waiting, Limit: n})
	if err != nil || len(ls) == 0 || len(ls) == n {
		t.Fatalf("%d of %d rows were given back, %v, want those that are remembered", len(ls), n, err)
	}
}

func TestTheRetriesAreNoSource(t *testing.T) {
	for _, name := range []string{"", onceward.Retries} {
		_, err := storequeue.New(memory.NewStore(), name).Subscribe(t.Context(), onceward.SubscribeParams{})
		if !onceward.IsPermanent(err) {
			t.Errorf("Subscribe to %q = %v, want a permanent error", name, err)
		}
	}
}
