package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
	"github.com/onceward/onceward/storetest"
	"go.uber.org/goleak"
	"modernc.org/sqlite"
)

// plainDriver is SQLite behind a connection that offers nothing beyond database/sql.
const plainDriver = "sqlite without hooks"

func init() { sql.Register(plainDriver, plain{&sqlite.Driver{}}) } //nolint:gochecknoinits // drivers are registered once per process

type plain struct{ driver.Driver }

func (d plain) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return plainConn{c.(sqliteConn)}, nil
}

type sqliteConn interface { //nolint:interfacebloat // what database/sql looks for in a connection
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type plainConn struct{ sqliteConn }

func openDB(t testing.TB, driverName, file, params string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, "file:"+(&url.URL{Path: file}).EscapedPath()+params)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openSQLite waits long for the writer lock, for a machine that is busy with other tests.
func openSQLite(t testing.TB, db *sql.DB) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.SQLite(db, &sqlstore.Config{LockTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSQLite is a store in a new file, beside a table for effects.
func newSQLite(t testing.TB, driverName string, conns int) (*sqlstore.Store, *sql.DB, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.db")
	db := openDB(t, driverName, file, "", conns)
	s := openSQLite(t, db)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effects (id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return s, db, file
}

func effect(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", id)
	return err
}

func effects(t testing.TB, db *sql.DB) map[string]int {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id, count(*) FROM effects GROUP BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		got[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// sqliteEnds are the ways out of a transaction that SQLite knows.
func sqliteEnds() []storetest.Ending[*sql.Tx] {
	ends := []storetest.Ending[*sql.Tx]{
		{Name: "Commit", End: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }},
		{Name: "Rollback", End: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }},
	}
	for _, stmt := range []string{
		"COMMIT", "END", "ROLLBACK",
		"ROLLBACK; BEGIN", "COMMIT; BEGIN IMMEDIATE",
		"ROLLBACK; INSERT INTO effects VALUES ('after')",
		"ROLLBACK; CREATE TABLE escaped (x)",
		"ROLLBACK; PRAGMA user_version = 7",
		"INSERT OR ROLLBACK INTO onceward_schema (version, name, at) VALUES (1, '', 0)",
	} {
		ends = append(ends, storetest.Ending[*sql.Tx]{Name: stmt, End: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, stmt)
			return err
		}})
	}
	return ends
}

func suite(driverName string, conns int) storetest.Harness[*sql.Tx] {
	return storetest.Harness[*sql.Tx]{
		Open: func(t *testing.T) storetest.Instance[*sql.Tx] {
			s, db, file := newSQLite(t, driverName, conns)
			return storetest.Instance[*sql.Tx]{
				Store:   s,
				Effect:  effect,
				Effects: func(t *testing.T) map[string]int { return effects(t, db) },
				Reopen: func(t *testing.T) onceward.Store[*sql.Tx] {
					return openSQLite(t, openDB(t, driverName, file, "", conns))
				},
			}
		},
		Ends:    sqliteEnds(),
		MaxWait: 10 * time.Second,
	}
}

func TestSQLite(t *testing.T) {
	t.Run("one connection", func(t *testing.T) { storetest.Run(t, suite("sqlite", 1)) })
	t.Run("eight connections", func(t *testing.T) { storetest.Run(t, suite("sqlite", 8)) })
	t.Run("without hooks", func(t *testing.T) { storetest.Run(t, suite(plainDriver, 8)) })
}

func TestMain(m *testing.M) {
	for _, child := range []func(){childProcess(), jobProcess()} {
		if child != nil {
			child()
			return
		}
	}
	goleak.VerifyTestMain(m)
}
