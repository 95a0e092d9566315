package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/onceward/onceward/sqlstore"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// opened is a config file together with its open store.
type opened struct {
	*config.Config
	db    *sql.DB
	store *sqlstore.Store
}

// openStore opens the database of a config file, for commands that look into it. It does not create
// it, and needs its tables.
func openStore(ctx context.Context, file string) (*opened, error) {
	cfg, err := config.LoadStore(file)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.Store.Path); err != nil {
		return nil, fmt.Errorf("the database %s does not exist yet; onceward run, publish or migrate up create it", cfg.Store.Path)
	}
	o, err := open(cfg)
	if err != nil {
		return nil, err
	}
	have, want, err := o.store.SchemaVersion(ctx)
	if err == nil && have != want {
		err = wrongVersion(have, want)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// open opens the database of a config and creates its file if need be, but no tables.
func open(cfg *config.Config) (*opened, error) {
	db, err := sql.Open("sqlite", dsn(cfg.Store.Path))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Store.Path, err)
	}
	store, err := sqlstore.SQLite(db, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", cfg.Store.Path, err), db.Close())
	}
	return &opened{cfg, db, store}, nil
}

// Close closes the database.
func (o *opened) Close() error { return o.db.Close() }

// dsn opens an SQLite file such that a commit is durable, a writer waits for another instead of
// failing, foreign keys are enforced, and a word in double quotes is a name and never a text.
func dsn(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	q := url.Values{
		"_pragma": {"busy_timeout(2000)", "synchronous(FULL)", "foreign_keys(ON)"},
		"_dqs":    {"0"},
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

func wrongVersion(have, want int) error {
	switch {
	case have == 0:
		return errors.New("the database has no tables of Onceward yet; run: onceward migrate up CONFIG")
	case have < want:
		return fmt.Errorf("the database's tables have version %d, and this program needs %d; run: onceward migrate up CONFIG", have, want)
	}
	return fmt.Errorf("the database's tables have version %d, and this program knows %d only; use a newer program", have, want)
}

// setup runs the user's own SQL file.
func (o *opened) setup(ctx context.Context) (err error) {
	if o.Setup == "" {
		return nil
	}
	text, err := os.ReadFile(o.Setup)
	if err != nil {
		return o.Errorf("setup", "%v", err)
	}
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = conn.ExecContext(ctx, string(text))
	_, open := conn.ExecContext(ctx, "ROLLBACK")
	switch {
	case err != nil && faultOfSQL(err):
		return o.Errorf("setup", "%s: %v", o.Setup, err)
	case err != nil:
		return fmt.Errorf("setup %s: %w", o.Setup, err)
	case open == nil:
		return o.Errorf("setup", "%s begins a transaction and does not commit it", o.Setup)
	}
	return nil
}

// faultOfSQL tells a mistake in a statement from trouble of the database.
func faultOfSQL(err error) bool {
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
