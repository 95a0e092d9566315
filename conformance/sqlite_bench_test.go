package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/onceward/onceward"
)

// BenchmarkSQLite compares transactions of n messages: empty ones, with claims, with an UPDATE per
// message, and with both. The ids are in order, as UUIDs of version 7 are.
func BenchmarkSQLite(b *testing.B) {
	for _, n := range []int{1, 100, 500} {
		for _, c := range []struct {
			name          string
			claim, update bool
		}{{"nothing", false, false}, {"claim", true, false}, {"update", false, true}, {"claim and update", true, true}} {
			b.Run(fmt.Sprintf("batch=%d/%s", n, c.name), func(b *testing.B) { benchBatch(b, n, c.claim, c.update) })
		}
	}
}

func benchBatch(b *testing.B, n int, claim, update bool) {
	s, db, _ := newSQLite(b, "sqlite", 2)
	for _, stmt := range []string{
		"CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER)",
		"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 1000) INSERT INTO accounts SELECT i, 0 FROM n",
	} {
		if _, err := db.ExecContext(b.Context(), stmt); err != nil {
			b.Fatal(err)
		}
	}
	rs := make([]onceward.Record, n)
	next := 0
	b.ResetTimer()
	for b.Loop() {
		for i := range rs {
			next++
			rs[i] = onceward.Record{ID: fmt.Sprintf("\x01%016x", next), Fingerprint: int64(next)}
		}
		err := s.InTx(b.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if claim {
				if found, err := s.Claim(ctx, tx, "bench", rs); err != nil || found[0] != onceward.Fresh {
					return fmt.Errorf("found %v: %w", found, err)
				}
			}
			if !update {
				return nil
			}
			st, err := tx.PrepareContext(ctx, "UPDATE accounts SET cents = cents + 1 WHERE id = ?")
			if err != nil {
				return err
			}
			defer st.Close() //nolint:errcheck // a benchmark
			for i := range rs {
				if _, err := st.ExecContext(ctx, (next-i)%1000); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/float64(b.N*n), "µs/msg")
}
