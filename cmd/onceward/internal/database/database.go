// Package database opens the database that a config file names, with settings that suit it.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/sqlstore"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// Database is an open database with a store in it. Its methods are safe for concurrent use.
type Database struct {
	DB    *sql.DB
	Store *sqlstore.Store

	config config.Store
	server server
}

// server is what differs between databases.
type server interface {
	// setup runs a text of several statements, alone among all processes.
	setup(ctx context.Context, db *sql.DB, text string) error
	// fault tells a mistake in a statement from trouble of the database.
	fault(err error) bool
	// refusal is the text of such an error, with what can be done about it.
	refusal(err error) string
	// inspect looks at version and settings, and whether the server takes writes.
	inspect(ctx context.Context, db *sql.DB) (*Report, error)
}

// ErrOpenTransaction says that a setup file begins a transaction and does not commit it.
var ErrOpenTransaction = errors.New("it begins a transaction and does not commit it")

// Open opens the database of a config. It creates an SQLite file if need be, but no tables, and does
// not connect to a server yet. Its error is about the config, and has no password in it.
func Open(c config.Store) (*Database, error) {
	opened := &sqlstore.Config{Prefix: c.TablePrefix, AllowLossyCommits: c.AllowLossyCommits, TransactionPooling: c.TransactionPooling}
	d := &Database{config: c}
	var err error
	store := sqlstore.SQLite
	switch c.Kind {
	case config.Postgres:
		store = sqlstore.Postgres
		d.DB, d.server, err = openPostgres(c)
	case config.MySQL:
		store = sqlstore.MySQL
		d.DB, d.server, err = openMySQL(c)
	default:
		d.server = sqliteFile{}
		d.DB, err = sql.Open("sqlite", SQLiteDSN(c.Path))
	}
	if err != nil {
		return nil, err
	}
	if d.Store, err = store(d.DB, opened); err != nil {
		return nil, errors.Join(err, d.DB.Close())
	}
	return d, nil
}

// pool keeps the connections of many lanes, and gives up those that nobody has used for a while before
// the server or something on the way does.
func pool(db *sql.DB) *sql.DB {
	db.SetMaxIdleConns(64)
	db.SetConnMaxIdleTime(3 * time.Minute)
	return db
}

// Close closes the database.
func (d *Database) Close() error { return d.DB.Close() }

// OwnTables reports whether the program creates its tables by itself, as it does in a file of its own.
func (d *Database) OwnTables() bool { return d.config.Kind == config.SQLite }

// Setup runs the user's own SQL. Several processes may be at it at the same time, but run it one after
// the other.
func (d *Database) Setup(ctx context.Context, text string) error {
	return d.server.setup(ctx, d.DB, text)
}

// BytesParams says which parameters of a statement are of the type bytea of Postgres, which takes a
// text for a notation of bytes. It is nil where no text is taken for one.
func (d *Database) BytesParams(ctx context.Context, stmt string) ([]bool, error) {
	if p, ok := d.server.(*postgres); ok {
		return p.bytesParams(ctx, d.DB, stmt)
	}
	return nil, nil
}

// Fault tells a mistake in a statement from trouble of the database.
func (d *Database) Fault(err error) bool { return d.server.fault(err) }

// Refusal is the text of a fault, with what can be done about it.
func (d *Database) Refusal(err error) string { return d.server.refusal(err) }

// Level says how much a finding matters.
type Level string

// The levels. A run would end with an error, could lose or mistake something, or goes on undisturbed.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Finding is something about a database that its owner should know.
type Finding struct {
	Level Level
	What  string
	Cure  string // may be empty
}

func (f Finding) String() string {
	if f.Cure == "" {
		return f.What
	}
	return f.What + "; " + f.Cure
}

// Report is what a look at a database has found.
type Report struct {
	Server   string // product and version
	Findings []Finding
}

func (r *Report) add(l Level, what, cure string) {
	r.Findings = append(r.Findings, Finding{l, what, cure})
}

// Inspect looks at the database without changing it.
func (d *Database) Inspect(ctx context.Context) (*Report, error) {
	r, err := d.server.inspect(ctx, d.DB)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.config.Text, err)
	}
	return r, nil
}

// lossy is the level of settings under which a power cut takes back commits.
func lossy(c config.Store) Level {
	if c.AllowLossyCommits {
		return Warning
	}
	return Error
}
