package conformance

import (
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/brokertest"
)

func TestSQLiteQueue(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Ordered: true,
		Returns: true,
		Open: func(t *testing.T) brokertest.Instance {
			s, _, _ := newSQLite(t, "sqlite", 2)
			return brokertest.Instance{
				Source: s.Queue("q"),
				Send: func(t *testing.T, msgs ...*onceward.Message) {
					es := make([]onceward.Entry, len(msgs))
					for i, m := range msgs {
						es[i] = onceward.Entry{Queue: "q", Message: *m}
					}
					if err := s.Put(t.Context(), es...); err != nil {
						t.Fatal(err)
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
