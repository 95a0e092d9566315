package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

//go:embed sqlite
var sqliteFiles embed.FS

// SQLite is a store in an SQLite database, in a file of its own or beside the program's tables, of
// version 3.42 or later. Any driver will do; modernc.org/sqlite and github.com/mattn/go-sqlite3 let
// the store guard its transactions, others do not. PRAGMA synchronous must be FULL, which is the
// default of the former and takes _synchronous=FULL in a data source name of the latter; neither
// _txlock nor busy_timeout matters, nor the size of the pool.
//
// SQLite has one writer at a time: InTx takes the writer lock first, waiting for it up to
// Config.LockTimeout, or longer if busy_timeout is, and then reads and writes without meeting
// SQLITE_BUSY. SQLite returns at once; the first use connects.
func SQLite(db *sql.DB, c *Config) (*Store, error) {
	return open(db, c, newSQLite)
}

func newSQLite(c Config) *sqlite {
	return &sqlite{prefix: c.Prefix, timeout: c.LockTimeout, writer: make(chan struct{}, 1)}
}

type sqlite struct {
	sqliteErrors
	prefix  string
	timeout time.Duration
	// writer is held by the store's transaction that writes, so that those of one process queue up
	// here instead of polling the file's lock.
	writer chan struct{}
}

func (*sqlite) name() string { return "SQLite" }

func sqliteFill(prefix string) *strings.Replacer {
	return strings.NewReplacer("{p}", prefix,
		"{now}", "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)",
		"{retries}", fmt.Sprintf("x'%x'", onceward.Retries))
}

func (d *sqlite) statements() *statements {
	return parseStatements(embedded(sqliteFiles, "sqlite/statements.sql"), sqliteFill(d.prefix),
		"WriterLock", "Claim", "ClaimRows", "ReturningID", "Savepoint", "RollbackTo", "Release", "PurgeLook")
}

func embedded(files embed.FS, name string) string {
	file, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(file)
}

func (d *sqlite) migrations() ([]Migration, error) {
	return readMigrations(sqliteFiles, "sqlite/migrations", sqliteFill(d.prefix))
}

func (*sqlite) bind(stmt string, args []any) (string, []any) { return bindMarks(stmt, args) }

func (*sqlite) oneWriter() bool { return true }

func (d *sqlite) enter(ctx context.Context) (func(), error) {
	timer := time.NewTimer(d.timeout)
	defer timer.Stop()
	select {
	case d.writer <- struct{}{}:
		return func() { <-d.writer }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("%w: no writer lock within %v", onceward.ErrConflict, d.timeout)
	}
}

// begin makes the first statement a write, for a deferred transaction that has read can't wait for
// the writer lock: SQLite fails it at once, whatever the busy timeout is.
func (d *sqlite) begin(ctx context.Context, s *Store, conn *sql.Conn, _ bool) (*sql.Tx, error) {
	var tx *sql.Tx
	err := d.untilFree(ctx, d.timeout, func(ctx context.Context) (err error) {
		if tx, err = beginTx(ctx, conn, nil); err != nil {
			return err
		}
		if _, err = s.prepared.exec(ctx, tx, s.sql.own["WriterLock"]); err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	if code := sqliteCode(err); code == codeError {
		err = onceward.Permanent(fmt.Errorf("%w: %w", onceward.ErrNoSchema, err))
	}
	return tx, err
}

// untilFree calls try until it succeeds or fails for another reason than a lock.
func (d *sqlite) untilFree(ctx context.Context, most time.Duration, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := try(limited)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && limited.Err() != nil {
			return fmt.Errorf("%w: no writer lock within %v: %w", onceward.ErrConflict, most, err)
		}
		if _, class := d.class(err); class != onceward.ErrConflict { //nolint:errorlint // class returns the sentinel itself
			return err
		}
		select {
		case <-limited.Done():
		case <-time.After(wait):
		}
	}
}

// migrationPatience is how long Migrate waits for another process's, or for readers.
const migrationPatience = 30 * time.Second

func (d *sqlite) migrate(ctx context.Context, conn *sql.Conn, fn func() error) error {
	err := d.untilFree(ctx, migrationPatience, func(ctx context.Context) error {
		var mode string
		if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
		if mode != "wal" {
			return onceward.Permanent(fmt.Errorf("onceward: the SQLite database can't keep a write-ahead log (journal_mode stays %q): use a file, not memory", mode))
		}
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	})
	if err != nil {
		return err
	}
	if err = fn(); err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // fails if COMMIT has done it
	}
	return err
}

// durable looks at the connection itself, for PRAGMA synchronous is not kept in the file.
func (*sqlite) durable(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return onceward.Permanent(fmt.Errorf("onceward: PRAGMA journal_mode is %s, which makes readers and writers wait for one another; run Migrate, which sets WAL", mode))
	}
	var level int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return err
	}
	if level < 2 {
		return onceward.Permanent(fmt.Errorf("onceward: PRAGMA synchronous is %s: a power cut could take back a commit whose message is acknowledged; set it to FULL on every connection, by _pragma=synchronous(FULL) in a data source name of modernc.org/sqlite, by _synchronous=FULL in one of mattn/go-sqlite3", [...]string{"OFF", "NORMAL"}[level]))
	}
	return nil
}
