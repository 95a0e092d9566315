package memory_test

import (
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/brokertest"
	"github.com/onceward/onceward/internal/leak"
	"github.com/onceward/onceward/memory"
)

func TestMain(m *testing.M) { leak.Check(m) }

func TestSource(t *testing.T) {
	t.Run("full", func(t *testing.T) { testSource(t, func(*memory.Source) {}) })
	t.Run("plain", func(t *testing.T) {
		testSource(t, func(s *memory.Source) { s.NoHints, s.NoDelayedRetry, s.NoDeadLetters = true, true, true })
	})
}

func testSource(t *testing.T, set func(*memory.Source)) {
	brokertest.Run(t, brokertest.Harness{
		Ordered: true,
		Returns: true,
		Open: func(t *testing.T) brokertest.Instance {
			leak.Verify(t)
			src := memory.NewSource()
			set(src)
			return brokertest.Instance{
				Source: src,
				Send:   func(_ *testing.T, msgs ...*onceward.Message) { src.Send(msgs...) },
				End:    func(*testing.T) { src.End() },
				Dead: func(*testing.T) (ids []string) {
					for _, d := range src.Dead() {
						ids = append(ids, d.ID)
					}
					return ids
				},
			}
		},
	})
}

func TestStoreQueue(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Ordered: true,
		Returns: true,
		Open: func(t *testing.T) brokertest.Instance {
			leak.Verify(t)
			s := memory.NewStore()
			return brokertest.Instance{
				Source: s.Queue("q"),
				Send: func(t *testing.T, msgs ...*onceward.Message) {
					for _, m := range msgs {
						if err := s.Put(t.Context(), onceward.Entry{Queue: "q", Message: *m}); err != nil {
							t.Fatal(err)
						}
					}
				},
				Dead: func(t *testing.T) (ids []string) {
					ls, err := s.List(t.Context(), onceward.Filter{Queue: "q", State: onceward.Dead})
					if err != nil {
						t.Fatal(err)
					}
					for _, l := range ls {
						ids = append(ids, l.Message.ID)
					}
					return ids
				},
			}
		},
	})
}

func TestMessagesWithoutDelayedRetryComeAtOnce(t *testing.T) {
	src := memory.Messages(&onceward.Message{ID: "a"})
	src.NoDelayedRetry, src.NoHints = true, true
	s, err := src.Subscribe(t.Context(), onceward.SubscribeParams{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ins, err := s.Receive(t.Context(), 1)
		if err != nil || ins[0].Redelivered {
			t.Fatalf("Receive = %+v, %v", ins, err)
		}
		if err := s.Settle(t.Context(), onceward.Settlement{Incoming: ins[0], Verdict: onceward.Requeue, After: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if n, pending := src.Deliveries("a"), src.Pending(); n != 2 || pending != 1 {
		t.Fatalf("%d deliveries, %d pending, want 2 and 1", n, pending)
	}
}
