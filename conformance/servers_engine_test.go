package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/brokertest"
	"github.com/onceward/onceward/sqlstore"
	"github.com/onceward/onceward/storetest"
)

// eachServer runs a test through every driver.
func eachServer(t *testing.T, test func(t *testing.T, s *server)) {
	for _, s := range []*server{pgxServer, pqServer, mysqlServer} {
		t.Run(s.driver, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

func (s *server) isPostgres() bool { return s.driver != "mysql" }

func record(id string) onceward.Record {
	return onceward.Record{ID: onceward.StoredID(id), Fingerprint: 1}
}

// claims is a handler: it claims ids in the order given and has an effect for each.
func (p *place) claims(ids ...string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		rs := make([]onceward.Record, len(ids))
		for i, id := range ids {
			rs[i] = record(id)
		}
		found, err := p.store.Claim(ctx, tx, "c", rs)
		for i := range found {
			if err == nil && found[i] == onceward.Fresh {
				err = p.effect(ctx, tx, ids[i])
			}
		}
		return err
	}
}

func (p *place) wantEffects(t *testing.T, want map[string]int) {
	t.Helper()
	got := p.effects(t)
	for id := range got {
		if want[id] != got[id] {
			t.Fatalf("effects = %v, want %v", got, want)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("effects = %v, want %v", got, want)
	}
}

func TestServerGuarded(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		if got := p.store.Guarded(); got != s.isPostgres() {
			t.Errorf("Guarded = %v", got)
		}
		if err := p.store.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v", err)
		}
		pooled, err := s.open(p.db, &sqlstore.Config{Prefix: p.prefix, TransactionPooling: true})
		if err != nil {
			t.Fatal(err)
		}
		if pooled.Guarded() {
			t.Error("Guarded behind a pooler of transactions")
		}
	})
}

func TestServerQueue(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		brokertest.Run(t, brokertest.Harness{Ordered: true, Returns: true, Open: func(t *testing.T) brokertest.Instance {
			return queueInstance(s.place(t, nil).store)
		}})
	})
}

func queueInstance(s *sqlstore.Store) brokertest.Instance {
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
}

// After a transaction the connection is as it was, whatever the handler did.
func TestServerConnectionComesBackClean(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		p.db.SetMaxOpenConns(1)
		ends := append(s.endings(func() string { return p.prefix }), storetest.Ending[*sql.Tx]{Name: "none", End: func(context.Context, *sql.Tx) error { return nil }})
		for i, end := range ends {
			_ = p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_ = end.End(ctx, tx)
				return map[bool]error{true: errors.New("failed")}[i%2 == 0]
			})
			if _, err := p.db.ExecContext(t.Context(), "INSERT INTO "+p.prefix+"effects VALUES ('own')"); err != nil {
				t.Errorf("a statement of the program after %s: %v", end.Name, err)
			}
		}
		p.db.SetMaxOpenConns(2)
		if own := p.effects(t)["own"]; own != len(ends) {
			t.Errorf("%d of %d statements of the program took effect", own, len(ends))
		}
	})
}

// A handler that swallows an error on which the database gives up the transaction is found out, and
// nothing takes effect.
func TestServerSwallowedError(t *testing.T) {
	t.Parallel()
	for _, s := range []*server{pgxServer, pqServer} {
		for _, pooled := range []bool{false, true} {
			t.Run(fmt.Sprint(s.driver, pooled), func(t *testing.T) {
				t.Parallel()
				p := s.place(t, nil)
				store, err := s.open(p.db, &sqlstore.Config{Prefix: p.prefix, TransactionPooling: pooled})
				if err != nil {
					t.Fatal(err)
				}
				for _, stmt := range []string{"SELECT 1 / 0", "INSERT INTO " + p.prefix + "schema (version, name, at) VALUES (1, '', 0)", "SELECT nonsense"} {
					var swallowed error
					err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
						err := p.claims("a")(ctx, tx)
						_, swallowed = tx.ExecContext(ctx, stmt)
						return err
					})
					if !errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrTxEscaped) || swallowed == nil {
						t.Errorf("InTx = %v after %s, %v was swallowed; want ErrTxEnded", err, stmt, swallowed)
					}
					err = store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
						_, err := tx.ExecContext(ctx, stmt)
						return err
					})
					if err == nil || errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrUnavailable) || errors.Is(err, onceward.ErrConflict) {
						t.Errorf("InTx = %v after %s whose error was returned, want no blame", err, stmt)
					}
				}
				p.wantEffects(t, nil)
			})
		}
	}
}

// What a handler does after it has ended its transaction is rolled back on MySQL too, if it does not
// commit that as well.
func TestMySQLNothingEscapesAfterACommit(t *testing.T) {
	p := mysqlServer.place(t, nil)
	for _, stmt := range []string{"COMMIT", "ROLLBACK", "CREATE TABLE IF NOT EXISTS " + p.prefix + "escaped (x int)"} {
		err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, stmt)
			return p.effect(ctx, tx, "after")
		})
		if !errors.Is(err, onceward.ErrTxEscaped) {
			t.Errorf("InTx = %v after %s, want ErrTxEscaped", err, stmt)
		}
	}
	p.wantEffects(t, nil)
}

// The database's own default isolation does not matter: the store sets its own.
func TestServerTwinsAtAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	levels := []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}
	eachServer(t, func(t *testing.T, s *server) {
		for _, level := range levels {
			settings := map[string]string{"default_transaction_isolation": strings.ToLower(level)}
			if !s.isPostgres() {
				settings = map[string]string{"tx_isolation": "'" + strings.ReplaceAll(level, " ", "-") + "'"}
			}
			p := s.place(t, settings)
			for i, how := range []error{nil, errors.New("roll back")} {
				p.twins(t, fmt.Sprint("id", i), how)
			}
		}
	})
}

// twins lets a second claim wait for a first one that ends with how.
func (p *place) twins(t *testing.T, id string, how error) {
	t.Helper()
	claimed, end, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first <- p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			err := p.claims(id)(ctx, tx)
			close(claimed)
			<-end
			return errors.Join(err, how)
		})
	}()
	<-claimed
	second := make(chan error, 1)
	go func() { second <- p.store.InTx(t.Context(), p.claims(id)) }()
	select {
	case err := <-second:
		t.Errorf("the second claim did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	if err := <-first; !errors.Is(err, how) {
		t.Errorf("the first: %v, want %v", err, how)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
	if got := p.effects(t)[id]; got != 1 {
		t.Errorf("%d effects of %s", got, id)
	}
}

// A transaction of the program's own above READ COMMITTED may not claim, for it would not see what the
// transaction it waited for has done.
func TestPostgresClaimRefusesIsolation(t *testing.T) {
	for _, s := range []*server{pgxServer, pqServer} {
		p := s.place(t, nil)
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx, err := p.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.store.Claim(t.Context(), tx, "c", []onceward.Record{record(level.String())})
			if (err == nil) != (level == sql.LevelDefault) {
				t.Errorf("%s: Claim at %s = %v", s.driver, level, err)
			}
			_ = tx.Rollback()
		}
	}
}

// Where a winner rolls back while two copies wait, or two transactions lock crosswise, the database may
// choose a victim: it is told to run again, and nothing happens twice.
func TestServerDeadlocks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		want := map[string]int{}
		conflicts := 0
		var mu sync.Mutex
		for round := range 10 {
			id := fmt.Sprint(round)
			want[id] = 1
			claimed, end := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					err := p.claims(id)(ctx, tx)
					close(claimed)
					<-end
					return errors.Join(err, errors.New("roll back"))
				})
			})
			<-claimed
			for range 3 {
				wg.Go(func() {
					for {
						err := p.store.InTx(t.Context(), p.claims(id))
						if err == nil {
							return
						}
						mu.Lock()
						conflicts++
						mu.Unlock()
						if !errors.Is(err, onceward.ErrConflict) && !errors.Is(err, onceward.ErrBusy) {
							t.Errorf("InTx = %v, want ErrConflict", err)
							return
						}
					}
				})
			}
			waitForLocks(t, p, 2)
			close(end)
			wg.Wait()
		}
		p.wantEffects(t, want)
		t.Logf("%d conflicts", conflicts)
	})
}

// waitForLocks waits until n transactions wait for locks, or for a while.
func waitForLocks(t *testing.T, p *place, n int) {
	t.Helper()
	query := "SELECT count(*) FROM pg_locks WHERE NOT granted"
	if !p.isPostgres() {
		query = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
	}
	for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
		var waiting int
		if err := p.db.QueryRowContext(t.Context(), query).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting >= n {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A handler that locks rows crosswise with another gets ErrConflict, and the other goes on.
func TestServerHandlersDeadlock(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		must(t, p.db, "INSERT INTO "+p.prefix+"effects VALUES ('x'), ('y')", "CREATE UNIQUE INDEX "+p.prefix+"i ON "+p.prefix+"effects (id)")
		first := make(chan struct{}, 2)
		errs := make(chan error, 2)
		for _, order := range [][2]string{{"x", "y"}, {"y", "x"}} {
			go func() {
				errs <- p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return p.crosswise(ctx, tx, order, first) })
			}()
		}
		lost := 0
		for range 2 {
			if err := <-errs; err != nil {
				lost++
				if !errors.Is(err, onceward.ErrConflict) || errors.Is(err, onceward.ErrTxEscaped) || errors.Is(err, onceward.ErrTxEnded) {
					t.Errorf("InTx = %v, want ErrConflict and no blame", err)
				}
			}
		}
		if lost != 1 {
			t.Errorf("%d of 2 were victims", lost)
		}
	})
}

// crosswise locks one row and, when both have their first, the other.
func (p *place) crosswise(ctx context.Context, tx *sql.Tx, order [2]string, first chan struct{}) error {
	for _, id := range order {
		if _, err := tx.ExecContext(ctx, "SELECT id FROM "+p.prefix+"effects WHERE id = '"+id+"' FOR UPDATE"); err != nil {
			return err
		}
		if id == order[0] {
			first <- struct{}{}
			for len(first) < 2 {
				<-time.After(time.Millisecond)
			}
		}
	}
	return nil
}

// The claim's patience is its own: a handler's statement waits as long as the session lets it.
func TestServerPatienceIsTheClaimsAlone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		query := "SELECT current_setting('lock_timeout')"
		if !s.isPostgres() {
			query = "SELECT @@innodb_lock_wait_timeout"
		}
		var before, within string
		if err := p.db.QueryRowContext(t.Context(), query).Scan(&before); err != nil {
			t.Fatal(err)
		}
		err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if err := p.claims("a", "b")(ctx, tx); err != nil {
				return err
			}
			return tx.QueryRowContext(ctx, query).Scan(&within)
		})
		if err != nil || before != within {
			t.Errorf("a lock is waited for %s instead of %s, %v", within, before, err)
		}
	})
}

// The connection is killed in the middle: an outage, no fault of the handler's, and nothing happened.
func TestServerKilledConnection(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		for _, returned := range []bool{true, false} {
			err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if err := p.claims("a")(ctx, tx); err != nil {
					return err
				}
				var n int
				if err := tx.QueryRowContext(ctx, s.number).Scan(&n); err != nil {
					return err
				}
				must(t, p.db, fmt.Sprintf(s.kill, n))
				err := p.effect(ctx, tx, "b")
				if returned {
					return err
				}
				return nil
			})
			if !errors.Is(err, onceward.ErrUnavailable) || errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrTxEscaped) || onceward.IsPermanent(err) {
				t.Errorf("InTx = %v with a killed connection, want ErrUnavailable", err)
			}
		}
		if err := p.store.InTx(t.Context(), p.claims("a")); err != nil {
			t.Errorf("the next transaction: %v", err)
		}
		p.wantEffects(t, map[string]int{"a": 1})
	})
}

func TestServerSchema(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.bare(t, nil)
		refused(t, p.store)
		var wg sync.WaitGroup
		for range 4 {
			other := p.another(t, s.database(t, nil))
			wg.Go(func() {
				if err := other.Migrate(t.Context()); err != nil {
					t.Errorf("Migrate: %v", err)
				}
			})
		}
		wg.Wait()
		if err := p.store.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v", err)
		}
		must(t, p.db, "INSERT INTO "+p.prefix+"schema (version, name, at) VALUES (99, 'from later', 0)")
		newer := p.another(t, p.db)
		for what, err := range map[string]error{"Migrate": newer.Migrate(t.Context()), "Ready": newer.Ready(t.Context())} {
			if !errors.Is(err, onceward.ErrNoSchema) || !onceward.IsPermanent(err) || !strings.Contains(err.Error(), "version 99") {
				t.Errorf("%s of newer tables = %v", what, err)
			}
		}
	})
}

// What Migrations prints makes tables that Ready accepts, run as one text.
func TestPostgresMigrationsByHand(t *testing.T) {
	p := pgxServer.bare(t, nil)
	ms, err := sqlstore.Migrations("postgres", &sqlstore.Config{Prefix: p.prefix})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		must(t, p.db, m.Up)
	}
	if err := p.store.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that is gone, a database that does not exist.
func TestServerUnreachable(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		for _, settings := range []map[string]string{{"host": "127.0.0.1:1"}, {"database": "nowhere"}} {
			if _, ok := settings["host"]; ok && !s.isPostgres() {
				settings["database"] = "onceward_test"
			}
			p := &place{server: s, db: s.database(t, settings), prefix: "p_"}
			store := p.another(t, p.db)
			for what, err := range map[string]error{
				"Ready": store.Ready(t.Context()),
				"InTx":  store.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }),
			} {
				if !errors.Is(err, onceward.ErrUnavailable) || onceward.IsPermanent(err) {
					t.Errorf("%s with %v = %v, want ErrUnavailable", what, settings, err)
				}
			}
		}
	})
}
