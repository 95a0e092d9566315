package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/onceward/onceward"
)

// transaction is one that runs. Only close frees what it holds.
type transaction struct {
	s         *Store
	conn      *sql.Conn
	tx        *sql.Tx
	guard     *guard
	leave     func()
	savepoint bool
	once      sync.Once

	mu        sync.Mutex
	queues    map[string]bool  // to signal after the commit
	consumers map[string]int64 // to remember after the commit
}

const handlerSavepoint = "onceward_handler"

// InTx runs fn in a transaction. See [onceward.Transactor]. fn's panic rolls back and goes on.
//
// While fn runs, the commit and rollback hooks of the driver's connection are the store's: a commit
// that fn attempts in any way is refused, and with it every statement that writes after a rollback.
// Hooks that the program registered itself are gone afterwards.
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
	if foreign {
		t.guard = s.probe(t.conn)
	}
	t.tx, err = s.dialect.begin(ctx, t.conn, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.prepared.exec(ctx, tx, s.sql.Lock)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.running.Store(t.tx, t)
	if t.guard != nil {
		t.guard.arm()
	} else if foreign {
		t.savepoint = true
		_, err = t.tx.ExecContext(ctx, "SAVEPOINT "+handlerSavepoint)
	}
	return t, err
}

// end commits if fn succeeded and has left the transaction as it was.
func (t *transaction) end(ctx context.Context, err error) error {
	if t.ended(ctx) {
		return t.blame(ctx, err)
	}
	if err != nil {
		return t.s.fail(ctx, err)
	}
	if t.guard != nil {
		t.guard.permit()
	}
	if err := t.tx.Commit(); err != nil {
		if t.guard != nil && t.guard.ended() {
			return fmt.Errorf("%w: %w", onceward.ErrTxEnded, err)
		}
		if class := t.s.dialect.commitClass(err); class != nil {
			return fmt.Errorf("%w: commit: %w", class, err)
		}
		return fmt.Errorf("onceward: commit: %w", err)
	}
	t.committed()
	return nil
}

// ended reports whether the transaction that began is over.
func (t *transaction) ended(ctx context.Context) bool {
	if t.guard != nil {
		return t.guard.ended()
	}
	if !t.savepoint {
		return false
	}
	_, err := t.tx.ExecContext(context.WithoutCancel(ctx), "RELEASE "+handlerSavepoint)
	return err != nil
}

// blame is the error for a transaction that is over before its time. The database may have ended it
// itself, which is no fault of a handler that returned the very error.
func (t *transaction) blame(ctx context.Context, err error) error {
	if err != nil && t.s.dialect.endsTx(err) {
		return t.s.fail(ctx, err)
	}
	ended := onceward.ErrTxEnded
	if t.guard == nil {
		ended = onceward.ErrTxEscaped
	}
	if err == nil {
		return ended
	}
	return fmt.Errorf("%w: %w", ended, t.s.fail(ctx, err))
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
		if t.guard != nil {
			defer t.guard.disarm()
		}
		if t.tx != nil {
			_ = t.tx.Rollback() // fails if it is over, which is what it is for
			t.s.running.Delete(t.tx)
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
	if _, err = tx.ExecContext(ctx, s.sql.AddConsumer, []byte(name)); err != nil {
		return 0, err
	}
	if err = tx.QueryRowContext(ctx, s.sql.Consumer, []byte(name)).Scan(&num); err != nil {
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
