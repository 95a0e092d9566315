package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
)

// BenchmarkServerClaim has one transaction per iteration with a claim of so many messages and one effect,
// guarded and not; raw is the effect alone.
func BenchmarkServerClaim(b *testing.B) {
	for _, s := range []*server{pgxServer, pqServer, mysqlServer} {
		p := s.place(b, nil)
		unguarded, err := s.open(p.db, &sqlstore.Config{Prefix: p.prefix, TransactionPooling: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.driver+"/raw", func(b *testing.B) { benchRaw(b, p) })
		for _, batch := range []int{1, 100} {
			for name, store := range map[string]*sqlstore.Store{"watched": p.store, "savepoint": unguarded} {
				b.Run(fmt.Sprint(s.driver, "/", name, "/", batch), func(b *testing.B) { benchClaims(b, p, store, name, batch) })
			}
		}
	}
}

func benchRaw(b *testing.B, p *place) {
	for b.Loop() {
		tx, err := p.db.BeginTx(b.Context(), nil)
		if err == nil {
			err = p.effect(b.Context(), tx, "x")
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

var benchSeq int

func benchClaims(b *testing.B, p *place, store *sqlstore.Store, name string, batch int) {
	for b.Loop() {
		rs := make([]onceward.Record, batch)
		for i := range rs {
			benchSeq++
			rs[i] = record(fmt.Sprintf("%012d", benchSeq))
		}
		err := store.InTx(b.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := store.Claim(ctx, tx, "c", rs); err != nil {
				return err
			}
			return p.effect(ctx, tx, "x")
		})
		if err != nil {
			b.Fatal(name, err)
		}
	}
}
