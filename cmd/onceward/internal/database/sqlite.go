package database

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLiteDSN opens an SQLite file such that a commit is durable, a writer waits for another instead of
// failing, foreign keys are enforced, and a word in double quotes is a name and never a text.
func SQLiteDSN(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	q := url.Values{
		"_pragma": {"busy_timeout(2000)", "synchronous(FULL)", "foreign_keys(ON)"},
		"_dqs":    {"0"},
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

type sqliteFile struct{}

func (sqliteFile) setup(ctx context.Context, db *sql.DB, text string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = conn.ExecContext(ctx, text)
	if _, open := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err == nil && open == nil {
		return ErrOpenTransaction
	}
	return err
}

func (sqliteFile) fault(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return true
	}
	return false
}

func (sqliteFile) refusal(err error) string { return err.Error() }

func (sqliteFile) inspect(ctx context.Context, db *sql.DB) (*Report, error) {
	var version string
	err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return &Report{Server: "SQLite " + version}, err
}
