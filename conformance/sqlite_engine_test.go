package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
)

func TestSQLiteGuarded(t *testing.T) {
	for name, want := range map[string]bool{"sqlite": true, plainDriver: false} {
		s, _, _ := newSQLite(t, name, 1)
		if got := s.Guarded(); got != want {
			t.Errorf("Guarded with driver %q = %v, want %v", name, got, want)
		}
	}
}

// A handler may use savepoints, and after a transaction the connection's commits are free again.
func TestSQLiteConnectionComesBackClean(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	for _, stmt := range []string{"SAVEPOINT a; INSERT INTO effects VALUES ('kept'); RELEASE a", "SAVEPOINT a; INSERT INTO effects VALUES ('lost'); ROLLBACK TO a; RELEASE a"} {
		err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, stmt)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	for _, end := range sqliteEnds() {
		_ = s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return end.End(ctx, tx) })
		if _, err := db.ExecContext(t.Context(), "INSERT INTO effects VALUES ('own')"); err != nil {
			t.Errorf("a statement of the program after %s: %v", end.Name, err)
		}
	}
	if got := effects(t, db); got["kept"] != 1 || got["lost"] != 0 || got["own"] != len(sqliteEnds()) || got["after"] != 0 {
		t.Errorf("effects = %v", got)
	}
}

// The database ends a transaction itself where a statement is interrupted. A handler that returns the
// error is not to blame, one that swallows it is.
func TestSQLiteEndsTransactionItself(t *testing.T) {
	for _, driverName := range []string{"sqlite", plainDriver} {
		t.Run(driverName, func(t *testing.T) { endsItself(t, driverName) })
	}
}

func interrupted(ctx context.Context, tx *sql.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := tx.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
		INSERT INTO effects SELECT 'x' FROM n WHERE i % 100000 = 0`)
	return err
}

func endsItself(t *testing.T, driverName string) {
	s, db, _ := newSQLite(t, driverName, 1)
	blame := onceward.ErrTxEscaped
	if s.Guarded() {
		blame = onceward.ErrTxEnded
	}
	err := s.InTx(t.Context(), interrupted)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, blame) {
		t.Errorf("InTx = %v, want the statement's error and no blame", err)
	}
	err = s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if interrupted(ctx, tx) == nil {
			t.Error("the statement succeeded")
		}
		_ = effect(ctx, tx, "after")
		return nil
	})
	if !errors.Is(err, blame) {
		t.Errorf("InTx = %v after a swallowed error, want %v", err, blame)
	}
	if s.Guarded() && len(effects(t, db)) > 0 {
		t.Error("something took effect")
	}
}

func TestSQLiteFull(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "PRAGMA max_page_count = 1"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000)
			INSERT INTO effects SELECT hex(zeroblob(4000)) FROM n`)
		return err
	})
	if !errors.Is(err, onceward.ErrUnavailable) || errors.Is(err, onceward.ErrTxEnded) {
		t.Errorf("InTx = %v with a full disk, want ErrUnavailable and no blame", err)
	}
	if got := effects(t, db); len(got) > 0 {
		t.Errorf("%d effects", len(got))
	}
}

func TestSQLiteLockTimeout(t *testing.T) {
	for _, params := range []string{"", "?_pragma=busy_timeout(60000)", "?_txlock=immediate", "?_txlock=exclusive&_pragma=busy_timeout(10)"} {
		t.Run(params, func(t *testing.T) {
			_, other, file := newSQLite(t, "sqlite", 1)
			s, err := sqlstore.SQLite(openDB(t, "sqlite", file, params, 2), &sqlstore.Config{LockTimeout: 500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			begin(t, other)
			start := time.Now()
			err = s.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil })
			if took := time.Since(start); !errors.Is(err, onceward.ErrConflict) || took < 400*time.Millisecond || took > 5*time.Second {
				t.Errorf("InTx = %v after %v, want ErrConflict after half a second", err, took)
			}
			if err = s.Ready(t.Context()); !errors.Is(err, onceward.ErrUnavailable) || onceward.IsPermanent(err) {
				t.Errorf("Ready = %v while another process writes, want ErrUnavailable", err)
			}
			done := make(chan error, 1)
			began := make(chan struct{})
			go func() {
				close(began)
				done <- s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, "a") })
			}()
			<-began
			if _, err := other.ExecContext(t.Context(), "COMMIT"); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Errorf("InTx = %v although the lock became free in time", err)
			}
		})
	}
}

// begin takes the writer lock on the only connection of db.
func begin(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
}

func TestSQLiteDeferredForeignKey(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	for _, stmt := range []string{"PRAGMA foreign_keys = ON", "CREATE TABLE parent (id PRIMARY KEY)", "CREATE TABLE child (p REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"} {
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO child VALUES (1)")
		return err
	})
	if err == nil || errors.Is(err, onceward.ErrInDoubt) || errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrUnavailable) {
		t.Errorf("InTx = %v, want a plain error: the commit has failed for certain", err)
	}
	if err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, "a") }); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
}

func TestSQLiteRefusesUnsafeSettings(t *testing.T) {
	for params, want := range map[string]string{
		"?_pragma=synchronous(NORMAL)":  "PRAGMA synchronous is NORMAL",
		"?_pragma=synchronous(OFF)":     "PRAGMA synchronous is OFF",
		"?_pragma=journal_mode(DELETE)": "PRAGMA journal_mode is delete",
	} {
		_, db, file := newSQLite(t, "sqlite", 1)
		_ = db.Close()
		s, err := sqlstore.SQLite(openDB(t, "sqlite", file, params, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = s.Ready(t.Context()); !onceward.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("Ready with %s = %v, want a permanent error with %q", params, err, want)
		}
	}
	s, err := sqlstore.SQLite(openDB(t, "sqlite", "unused", "?mode=memory", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Migrate(t.Context()); !onceward.IsPermanent(err) || !strings.Contains(err.Error(), "use a file") {
		t.Errorf("Migrate of a database in memory = %v", err)
	}
}

func TestSQLiteReadOnly(t *testing.T) {
	_, db, file := newSQLite(t, "sqlite", 1)
	_ = db.Close()
	s, err := sqlstore.SQLite(openDB(t, "sqlite", file, "?_pragma=query_only(1)", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Ready": s.Ready(t.Context()),
		"InTx":  s.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }),
	} {
		if !onceward.IsPermanent(err) || !errors.Is(err, onceward.ErrUnavailable) {
			t.Errorf("%s = %v, want a permanent ErrUnavailable", what, err)
		}
	}
}

func TestSQLiteNotADatabase(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("this is no database\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, filepath.Join(dir, "missing", "test.db")} {
		s, err := sqlstore.SQLite(openDB(t, "sqlite", f, "", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"Migrate": s.Migrate(t.Context()),
			"Ready":   s.Ready(t.Context()),
			"InTx":    s.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }),
		} {
			if !errors.Is(err, onceward.ErrUnavailable) {
				t.Errorf("%s of %s = %v, want ErrUnavailable", what, f, err)
			}
		}
	}
}

func TestSQLiteSchema(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	db := openDB(t, "sqlite", file, "", 1)
	s, err := sqlstore.SQLite(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s)
	for range 2 {
		if err = s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	have, want, err := s.SchemaVersion(t.Context())
	if err != nil || have != want || want == 0 {
		t.Errorf("SchemaVersion = %d, %d, %v", have, want, err)
	}
	if err = s.Ready(t.Context()); err != nil {
		t.Errorf("Ready = %v", err)
	}
	if _, err = db.ExecContext(t.Context(), "INSERT INTO onceward_schema (version, name, at) VALUES (99, 'from later', 0)"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Ready": s.Ready(t.Context())} {
		if !errors.Is(err, onceward.ErrNoSchema) || !onceward.IsPermanent(err) || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("%s of newer tables = %v", what, err)
		}
	}
}

func refused(t *testing.T, s *sqlstore.Store) {
	t.Helper()
	_, leased := s.Lease(t.Context(), onceward.LeaseParams{Queue: "q", Max: 1, For: time.Minute})
	_, known := s.Known(t.Context(), "c")
	_, stats := s.Stats(t.Context())
	for what, err := range map[string]error{
		"Ready": s.Ready(t.Context()),
		"InTx":  s.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }),
		"Lease": leased, "Known": known, "Stats": stats,
	} {
		if !errors.Is(err, onceward.ErrNoSchema) || !onceward.IsPermanent(err) {
			t.Errorf("%s without tables = %v, want a permanent ErrNoSchema", what, err)
		}
	}
}

func TestSQLiteMigrateAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	var wg sync.WaitGroup
	for range 6 {
		s, err := sqlstore.SQLite(openDB(t, "sqlite", file, "", 2), nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	wg.Wait()
}

// What Migrations prints makes tables that Ready accepts, beside others under another prefix.
func TestSQLiteMigrationsByHand(t *testing.T) {
	db := openDB(t, "sqlite", filepath.Join(t.TempDir(), "test.db"), "?_pragma=journal_mode(WAL)", 1)
	c := &sqlstore.Config{Prefix: "shop_"}
	ms, err := sqlstore.Migrations("sqlite", c)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if _, err = db.ExecContext(t.Context(), m.Up); err != nil {
			t.Fatalf("migration %d: %v", m.Version, err)
		}
	}
	openSQLite(t, db)
	s, err := sqlstore.SQLite(db, c)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSQLiteMessagesView(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	ids := []string{"order:42:created", "0190c8a4-5b6e-7abc-8def-0123456789ab", "grün", "0190C8A4-5B6E-7ABC-8DEF-0123456789AB"}
	rs := make([]onceward.Record, len(ids))
	for i, id := range ids {
		rs[i].ID = onceward.StoredID(id)
	}
	err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.Claim(ctx, tx, "ledger", rs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM onceward_messages
			WHERE consumer = 'ledger' AND id = ? AND at BETWEEN datetime('now', '-1 minute') AND datetime('now', '+1 minute')`, id).Scan(&n)
		if err != nil || n != 1 {
			t.Errorf("%d rows for %s, %v", n, id, err)
		}
	}
}

// The statements that run all the time use an index, also before there are any statistics.
func TestSQLitePlans(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	_ = s
	const due = "SELECT q.seq FROM onceward_queue q WHERE q.queue = x'71' AND q.consumer = x'' AND q.state < 3 AND "
	for stmt, want := range map[string]string{
		due + "q.due = 0 ORDER BY q.seq LIMIT 5":                                  "onceward_queue_due (queue=? AND consumer=? AND due=?)",
		due + "q.due > 0 AND q.due <= 5 ORDER BY q.due LIMIT 5":                   "onceward_queue_due (queue=? AND consumer=? AND due>? AND due<?)",
		due + "q.order_key = x'61' AND q.order_key <> x'' AND q.seq < 5":          "onceward_queue_order (queue=? AND consumer=? AND order_key=? AND seq<?)",
		"SELECT id FROM onceward_inbox WHERE consumer = 1 AND id IN (x'61')":      "PRIMARY KEY (consumer=? AND id=?)",
		"SELECT id FROM onceward_queue WHERE queue=x'' AND consumer=x'' AND id=1": "(queue=? AND consumer=? AND id=?)",
	} {
		if plan := plan(t, db, stmt); !strings.Contains(plan, want) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s: plan %s, want %s", stmt, plan, want)
		}
	}
}

func plan(t *testing.T, db *sql.DB, stmt string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+stmt)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		all = append(all, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

// A handler that ignores its context does not keep the connection: with a pool of one the next
// transaction runs before it returns.
func TestSQLiteAbandonedHandler(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	ctx, cancel := context.WithCancel(t.Context())
	began, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.InTx(ctx, func(_ context.Context, tx *sql.Tx) error {
			err := effect(context.Background(), tx, "before")
			close(began)
			<-release
			return errors.Join(err, effect(context.Background(), tx, "after"))
		})
	}()
	<-began
	cancel()
	if err := s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, "next") }); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the abandoned one: %v, want context.Canceled", err)
	}
	if got := effects(t, db); len(got) != 1 || got["next"] != 1 {
		t.Errorf("effects = %v", got)
	}
}

func TestSQLiteClosed(t *testing.T) {
	s, db, _ := newSQLite(t, "sqlite", 1)
	_ = db.Close()
	_, leased := s.Lease(t.Context(), onceward.LeaseParams{Queue: "q", Max: 1, For: time.Minute})
	for what, err := range map[string]error{
		"Ready": s.Ready(t.Context()),
		"InTx":  s.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil }),
		"Lease": leased,
	} {
		if !errors.Is(err, onceward.ErrUnavailable) || onceward.IsPermanent(err) {
			t.Errorf("%s of a closed database = %v, want ErrUnavailable", what, err)
		}
	}
}
