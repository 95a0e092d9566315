package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward"
)

// transaction is one that runs. Only close frees what it holds.
type transaction struct {
	s         *Store
	conn      *sql.Conn
	tx        *sql.Tx
	watch     watch // nil: it is in our hands only
	leave     func()
	permanent bool // committed
	once      sync.Once

	mu        sync.Mutex
	queues    map[string]bool  // to signal after the commit
	consumers map[string]int64 // to remember after the commit
}

// watch is kept over one transaction that is in a handler's hands.
type watch interface {
	// guards reports whether it refuses what a handler may do to escape.
	guards() bool
	// before is called before BEGIN, begun after it.
	before(ctx context.Context) error
	begun(ctx context.Context, tx *sql.Tx) error
	// over returns nil if the transaction that began is still open when the handler has returned, and
	// is ready to be committed if commit is set. Else the error wraps ErrTxEnded, ErrTxEscaped or, where
	// the connection is gone, ErrUnavailable.
	over(ctx context.Context, tx *sql.Tx, commit bool) error
	// after makes the connection anybody's again, when the transaction is over. With an error it must
	// not be used again.
	after(committed bool) error
}

// InTx runs fn in a transaction, at READ COMMITTED where the database has several levels. See
// [onceward.Transactor]. fn's panic rolls back and goes on.
//
// While fn runs, the connection is guarded, each database in its own way. On SQLite the commit and
// rollback hooks of the driver's connection are the store's; hooks that the program registered itself
// are gone afterwards. On Postgres a raw COMMIT breaks a deferred constraint of the store's, and
// default_transaction_read_only is on in the session, so that what follows a ROLLBACK is refused;
// SET CONSTRAINTS ALL IMMEDIATE fails for the same reason: name your own constraints. On MySQL
// autocommit is off in the session, so that what follows a COMMIT is rolled back.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return s.run(ctx, true, func(ctx context.Context, t *transaction) error { return fn(ctx, t.tx) })
}

// run runs fn in a transaction. foreign says that fn is not ours and may end the transaction.
func (s *Store) run(ctx context.Context, foreign bool, fn func(ctx context.Context, t *transaction) error) error {
	t, err := s.begin(ctx, foreign)
	if err != nil {
		return s.failOwn(ctx, err)
	}
	defer t.close() // for a panic, and runtime.Goexit
	stop := context.AfterFunc(ctx, t.close)
	err = fn(ctx, t)
	if !stop() {
		t.close() // waits until the rollback is done
		if err == nil || errors.Is(err, sql.ErrTxDone) {
			err = context.Cause(ctx)
		}
		return s.fail(ctx, fmt.Errorf("onceward: rolled back: %w", err))
	}
	err = t.end(ctx, err)
	t.close()
	s.prepared.prepare(ctx, s.db)
	return err
}

func (s *Store) begin(ctx context.Context, foreign bool) (_ *transaction, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &transaction{s: s}
	if t.leave, err = s.dialect.enter(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.conn, err = s.db.Conn(ctx); err != nil {
		return nil, err
	}
	if err = s.check(ctx, t.conn); err != nil {
		return nil, err
	}
	if foreign {
		t.watch = s.watch(t.conn)
		if err = t.watch.before(ctx); err != nil {
			return nil, err
		}
	}
	if t.tx, err = s.dialect.begin(ctx, s, t.conn, foreign); err != nil {
		return nil, err
	}
	s.running.Store(t.tx, t)
	if foreign {
		err = t.watch.begun(ctx, t.tx)
	}
	return t, err
}

// check looks once whether the tables are there, for not every transaction would find out.
func (s *Store) check(ctx context.Context, conn *sql.Conn) error {
	if s.checked.Load() {
		return nil
	}
	ms, err := s.dialect.migrations()
	if err != nil {
		return err
	}
	have, err := s.version(ctx, conn)
	if err != nil {
		return err
	}
	if have != len(ms) {
		return wrongVersion(s, have, len(ms))
	}
	s.checked.Store(true)
	return nil
}

// beginTx begins a transaction that outlives ctx, because transaction.close must know when it is over;
// but beginning ends with ctx.
func beginTx(ctx context.Context, conn *sql.Conn, opts *sql.TxOptions) (*sql.Tx, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := conn.BeginTx(lasting, opts)
	if !stop() && err == nil {
		_ = tx.Rollback()
		return nil, ctx.Err()
	}
	if err != nil {
		cancel()
	}
	return tx, err
}

// end commits if fn succeeded and has left the transaction as it was.
func (t *transaction) end(ctx context.Context, err error) error {
	if t.watch != nil {
		if over := t.watch.over(context.WithoutCancel(ctx), t.tx, err == nil); over != nil {
			return t.blame(ctx, over, err)
		}
	}
	if err != nil {
		if t.watch == nil {
			return t.s.failStatement(ctx, err)
		}
		return t.s.fail(ctx, err)
	}
	if err := t.tx.Commit(); err != nil {
		if class := t.s.dialect.commitClass(err); class != nil {
			return fmt.Errorf("%w: commit: %w", class, err)
		}
		return fmt.Errorf("onceward: commit: %w", err)
	}
	t.permanent = true
	t.committed()
	return nil
}

// blame is the error for a transaction that is over before its time. The database may have ended it
// itself, which is no fault of a handler that returned the very error.
func (t *transaction) blame(ctx context.Context, over, err error) error {
	switch {
	case err == nil:
		return over
	case t.s.dialect.endsTx(err):
		return t.s.fail(ctx, err)
	case errors.Is(err, over):
		return err
	}
	return fmt.Errorf("%w: %w", over, t.s.fail(ctx, err))
}

func (t *transaction) committed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for q := range t.queues {
		t.s.notify.signal(q)
	}
	for name, num := range t.consumers {
		t.s.nums.Store(name, num)
	}
}

// close rolls back what is not committed and frees everything. It is called more than once, also
// while fn still runs; later calls wait for the first.
func (t *transaction) close() {
	t.once.Do(func() {
		defer t.leave()
		if t.conn == nil {
			return
		}
		defer t.conn.Close() //nolint:errcheck // a connection goes back to the pool
		if t.tx != nil {
			_ = t.tx.Rollback() // fails if it is over, which is what it is for
			t.s.running.Delete(t.tx)
		}
		if t.watch != nil {
			if err := t.watch.after(t.permanent); err != nil {
				_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // out of the pool with it
			}
		}
	})
}

// of finds our transaction that tx belongs to; nil if the program began tx itself.
func (s *Store) of(tx *sql.Tx) *transaction {
	if t, ok := s.running.Load(tx); ok {
		return t.(*transaction) //nolint:forcetypeassert // only transactions are stored
	}
	return nil
}

// appended remembers to signal a queue after the commit.
func (s *Store) appended(tx *sql.Tx, queue string) {
	t := s.of(tx)
	if t == nil {
		return // polling finds it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues == nil {
		t.queues = map[string]bool{}
	}
	t.queues[queue] = true
}

// consumer is the number that stands for a consumer's name in the inbox. It is remembered only once
// the transaction that may have given it is committed.
func (s *Store) consumer(ctx context.Context, tx *sql.Tx, name string) (num int64, err error) {
	if n, ok := s.nums.Load(name); ok {
		return n.(int64), nil //nolint:forcetypeassert // only numbers are stored
	}
	err = s.queryRow(ctx, tx, s.sql.Consumer, []byte(name)).Scan(&num)
	if err == nil {
		s.nums.Store(name, num)
		return num, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if len(name) > maxName {
		return 0, onceward.Permanent(fmt.Errorf("onceward: a consumer's name has more than %d bytes", maxName))
	}
	if num, err = s.register(ctx, name); num != 0 || err != nil {
		return num, err
	}
	if _, err = s.exec(ctx, tx, s.sql.AddConsumer, []byte(name)); err != nil {
		return 0, err
	}
	if err = s.queryRow(ctx, tx, s.sql.Consumer, []byte(name)).Scan(&num); err != nil {
		return 0, err
	}
	if t := s.of(tx); t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.consumers == nil {
			t.consumers = map[string]int64{}
		}
		t.consumers[name] = num
	}
	return num, nil
}

// register gives a new consumer its number in a transaction of its own, for in a handler's it would
// make all others of the consumer wait for its end. That takes a second connection; 0 if there may be
// none.
func (s *Store) register(ctx context.Context, name string) (num int64, err error) {
	if st := s.db.Stats(); s.dialect.oneWriter() || st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
		return 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // the last connection may just have gone
	defer cancel()
	if _, err := s.exec(limited, s.db, s.sql.AddConsumer, []byte(name)); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return 0, nil
		}
		return 0, err
	}
	if err = s.queryRow(ctx, s.db, s.sql.Consumer, []byte(name)).Scan(&num); err != nil {
		return 0, err
	}
	s.nums.Store(name, num)
	return num, nil
}
