// Package sqlstore keeps an inbox, queues and positions in a database that is reached through
// database/sql. It imports no driver: the program brings its own.
//
//	db, err := sql.Open("sqlite", "file:payments.db")
//	store, err := sqlstore.SQLite(db, nil)
//	err = store.Migrate(ctx)
//
// A handler gets the *[sql.Tx] that its message is claimed in. It must not end it.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/storequeue"
)

// Config tunes a store. Nil and the zero value are ready to use.
type Config struct {
	// Prefix starts the names of the store's tables: a lower-case letter or '_', then at most 30
	// more of these or digits. Defaults to "onceward_".
	Prefix string
	// LockTimeout is how long a transaction waits for another one: for SQLite's writer lock, or for
	// a claim of the same message. It does not limit what a handler's own statements wait for. MySQL
	// and MariaDB count in whole seconds, rounded up. Defaults to 2 s.
	LockTimeout time.Duration
	// TransactionPooling says that the connections are to a pooler that may give each transaction
	// another connection of the server's, such as PgBouncer with pool_mode = transaction. The store
	// then leaves no settings in a session, so it can't guard its transactions: Guarded is false.
	TransactionPooling bool
	// AllowLossyCommits accepts settings under which a power cut takes back commits, and with them
	// messages that are acknowledged. Ready refuses them otherwise, with an error that names them.
	AllowLossyCommits bool
}

var goodPrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}$`)

func (c *Config) withDefaults() (Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Prefix == "" {
		d.Prefix = "onceward_"
	}
	if d.LockTimeout == 0 {
		d.LockTimeout = 2 * time.Second
	}
	if !goodPrefix.MatchString(d.Prefix) {
		return d, fmt.Errorf("onceward: sqlstore.Config.Prefix %s must match %s", onceward.Quote(d.Prefix), goodPrefix)
	}
	if d.LockTimeout < 0 {
		return d, errors.New("onceward: sqlstore.Config.LockTimeout must not be negative")
	}
	return d, nil
}

// Store is a store in a database. Its methods are safe for concurrent use. It opens no connection of
// its own, holds at most one of db's at a time per call, and needs no closing: close db.
type Store struct {
	db       *sql.DB
	config   Config
	dialect  dialect
	sql      *statements
	prepared prepared
	notify   notifier
	guarded  atomic.Int32 // 0: not known yet, 1: yes, 2: no
	checked  atomic.Bool  // the tables are there
	running  sync.Map     // *sql.Tx of InTx -> *transaction
	nums     sync.Map     // consumer -> int64, committed ones only
	hands    hands
}

var _ onceward.Store[*sql.Tx] = (*Store)(nil)

// dialect is what differs between databases beside the statements.
type dialect interface {
	language
	transactions
	errorClasses

	oneWriter() bool // two transactions that write can't be open at once

	// claim inserts records, as indexes of c.rs, sorted, at most chunk of them, unless they are parked,
	// held or lost. It returns those that it has not inserted.
	claim(ctx context.Context, c *claim, part []int) (short []int, err error)
	// purge removes old inbox records of a consumer in a stretch of the table, at most limit of them,
	// in a transaction of its own. more: behind this stretch is another.
	purge(ctx context.Context, s *Store, p purging) (n int, more bool, err error)
}

// language is a dialect's SQL.
type language interface {
	name() string
	statements() *statements
	migrations() ([]Migration, error)
	bind(stmt string, args []any) (string, []any)
}

// transactions is how a dialect begins and ends transactions.
type transactions interface {
	// enter waits for what must be had before a connection is taken, and returns how to leave.
	enter(ctx context.Context) (leave func(), err error)
	// begin begins a transaction on conn that can write. foreign: a handler will have it.
	begin(ctx context.Context, s *Store, conn *sql.Conn, foreign bool) (*sql.Tx, error)
	// migrate runs fn on conn, alone among all processes and, if the database can, in one transaction.
	migrate(ctx context.Context, conn *sql.Conn, fn func() error) error
	// watch is what a transaction in a handler's hands is watched by.
	watch(conn *sql.Conn) watch
	// durable refuses a connection on which a commit does not outlive a power cut.
	durable(ctx context.Context, conn *sql.Conn) error
}

// errorClasses sorts errors of the driver.
type errorClasses interface {
	// class is ErrConflict, ErrUnavailable, ErrNoSchema or nil; permanent if no waiting can help.
	class(err error) (permanent bool, class error)
	// commitClass is class for an error of COMMIT, where ErrInDoubt is the answer unless the code
	// says that nothing was committed; nil then.
	commitClass(err error) error
	// endsTx reports whether err is one on which the database rolls the whole transaction back.
	endsTx(err error) bool
	// timedOut reports whether a lock was not to be had in time.
	timedOut(err error) bool
	// lost reports whether err, of a statement that is right, says that the connection is gone.
	lost(err error) bool
}

// open is what the constructors of all dialects do.
func open[D dialect](db *sql.DB, c *Config, build func(Config) D) (*Store, error) {
	config, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("onceward: sqlstore: db is nil")
	}
	d := build(config)
	return &Store{db: db, config: config, dialect: d, sql: d.statements()}, nil
}

// String names the store for logs.
func (s *Store) String() string { return s.dialect.name() + " tables " + s.config.Prefix + "*" }

// Queue is a queue of the store as a source: messages that [Store.Append] or Put has put there. The
// name is not looked at until a consumer subscribes.
func (s *Store) Queue(name string) onceward.StoreQueue { return storequeue.New(s, name) }

// fail gives err its class, as every method returns it. ctx's own end is not the store's fault.
func (s *Store) fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	permanent, class := s.dialect.class(err)
	if class != nil && !errors.Is(err, class) && !errors.Is(err, onceward.ErrBusy) {
		err = fmt.Errorf("%w: %w", class, err)
	}
	if permanent && !onceward.IsPermanent(err) {
		err = onceward.Permanent(err)
	}
	return err
}

// failStatement is fail for an error of a statement of ours: if the database has not answered, it is
// gone.
func (s *Store) failStatement(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	lost := s.dialect.lost(err)
	err = s.fail(ctx, err)
	if lost {
		return s.unready(ctx, err)
	}
	return err
}

// failOwn is fail for errors that no statement of a handler can have caused.
func (s *Store) failOwn(ctx context.Context, err error) error {
	err = s.fail(ctx, err)
	if errors.Is(err, onceward.ErrConflict) || errors.Is(err, onceward.ErrBusy) {
		return err
	}
	return s.unready(ctx, err)
}

// Ready performs a trivial write. It refuses, permanently, a database that is read-only, one whose
// tables are missing or of another version, and a connection on which a commit may be lost by a
// power cut, for an acknowledged message would be lost with it. A server that takes no writes now may
// be one that is being replaced: that is no permanent error.
func (s *Store) Ready(ctx context.Context) error {
	have, want, err := s.SchemaVersion(ctx)
	if err != nil {
		return s.unready(ctx, err)
	}
	if have != want {
		return wrongVersion(s, have, want)
	}
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		if !s.config.AllowLossyCommits {
			if err := s.dialect.durable(ctx, t.conn); err != nil {
				return err
			}
		}
		_, err := s.exec(ctx, t.tx, s.sql.Beat)
		return err
	})
	return s.unready(ctx, err)
}

func (s *Store) unready(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || onceward.IsPermanent(err) || errors.Is(err, onceward.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", onceward.ErrUnavailable, err)
}

func wrongVersion(s *Store, have, want int) error {
	what := "are missing"
	switch {
	case have > want:
		what = fmt.Sprintf("are of version %d, and this program knows %d: it is too old", have, want)
	case have > 0:
		what = fmt.Sprintf("are of version %d, and this program needs %d", have, want)
	}
	return onceward.Permanent(fmt.Errorf("%w: %s %s", onceward.ErrNoSchema, s, what))
}

// Guarded reports whether the driver gives a means to refuse a handler's own commit. It may open a
// connection the first time it is called.
func (s *Store) Guarded() bool {
	if g := s.guarded.Load(); g != 0 {
		return g == 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.LockTimeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // a connection goes back to the pool
	return s.watch(conn).guards()
}

func (s *Store) watch(conn *sql.Conn) watch {
	w := s.dialect.watch(conn)
	if w.guards() {
		s.guarded.Store(1)
	} else {
		s.guarded.Store(2)
	}
	return w
}

// prepared keeps statements that are worth it. One can be prepared only while no connection is held,
// for the pool may have a single one: a transaction notes what it misses, and it is prepared after.
type prepared struct {
	mu     sync.Mutex
	stmts  map[string]*sql.Stmt
	wanted []string
}

const maxPrepared = 64

func (p *prepared) get(ctx context.Context, tx *sql.Tx, text string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.stmts[text]; st != nil {
		return tx.StmtContext(ctx, st)
	}
	if len(p.stmts)+len(p.wanted) < maxPrepared {
		p.wanted = append(p.wanted, text)
	}
	return nil
}

func (p *prepared) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (sql.Result, error) {
	if st := p.get(ctx, tx, text); st != nil { //nolint:sqlclosecheck // kept for the next transaction
		return st.ExecContext(ctx, args...)
	}
	return tx.ExecContext(ctx, text, args...)
}

// prepare prepares what was missed. Failing is harmless: the text is run as it is.
func (p *prepared) prepare(ctx context.Context, db *sql.DB) {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // a busy pool is no reason to wait
	defer cancel()
	for _, text := range wanted {
		st, err := db.PrepareContext(ctx, text) //nolint:sqlclosecheck // kept with the store
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.stmts == nil {
			p.stmts = map[string]*sql.Stmt{}
		}
		if p.stmts[text] == nil {
			p.stmts[text], st = st, nil
		}
		p.mu.Unlock()
		if st != nil {
			_ = st.Close()
		}
	}
}
