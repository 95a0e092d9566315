package conformance

import (
	"testing"

	"github.com/onceward/onceward/brokertest"
)

func TestSQLiteQueue(t *testing.T) {
	brokertest.Run(t, brokertest.Harness{
		Ordered: true,
		Returns: true,
		Open: func(t *testing.T) brokertest.Instance {
			s, _, _ := newSQLite(t, "sqlite", 2)
			return queueInstance(s)
		},
	})
}
