package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

//go:embed mysql
var mysqlFiles embed.FS

// MySQL is a store in a MariaDB or MySQL database, whose tables are InnoDB, through any driver;
// github.com/go-sql-driver/mysql is tested, with MariaDB 10.11. MySQL must be 8.0 or later; the
// statements keep to what it has, but it is not tested. The data source name must name the database.
// The pool should have at least two connections. MySQL returns at once; the first use connects.
//
// Transactions run at READ COMMITTED whatever the server's default is, for at REPEATABLE READ one that
// waited for its twin does not see what the twin did, and inserts of different ids deadlock over gaps.
// The server must keep its binary log, if it has one, in the format ROW or MIXED. The store can't
// refuse a handler's COMMIT, or a statement with an implicit one, so Guarded is false; what the handler
// does after one is rolled back.
func MySQL(db *sql.DB, c *Config) (*Store, error) {
	return open(db, c, newMySQL)
}

type mysql struct {
	mysqlErrors
	config Config
	stmts  *statements
}

func newMySQL(c Config) *mysql {
	d := &mysql{config: c}
	d.stmts = parseStatements(embedded(mysqlFiles, "mysql/statements.sql"), d.fill(),
		"Autocommit", "NoAutocommit", "Claim", "LockRows", "AnyParked", "PurgeLock", "PurgeUnlock", "PurgeLook")
	return d
}

func (*mysql) name() string { return "MySQL" }

// fill sets how long a claim waits for the one statement alone, so that a handler's own are not
// affected: MariaDB has SET STATEMENT for that, MySQL a hint. Each takes the other's for a comment.
func (d *mysql) fill() *strings.Replacer {
	seconds := max(int64((d.config.LockTimeout+time.Second-1)/time.Second), 1)
	bounded := func(verb string) string {
		return fmt.Sprintf("/*M!100100 SET STATEMENT innodb_lock_wait_timeout = %d FOR */ %s /*+ SET_VAR(innodb_lock_wait_timeout = %d) */", seconds, verb, seconds)
	}
	return strings.NewReplacer("{p}", d.config.Prefix,
		"{now}", "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
		"{retries}", fmt.Sprintf("x'%x'", onceward.Retries),
		"{bounded}", bounded("INSERT"), "{bounded-select}", bounded("SELECT"))
}

func (d *mysql) statements() *statements { return d.stmts }

func (d *mysql) migrations() ([]Migration, error) {
	return readMigrations(mysqlFiles, "mysql/migrations", d.fill())
}

func (*mysql) bind(stmt string, args []any) (string, []any) { return bindLiterals(stmt, args) }

func (*mysql) oneWriter() bool { return false }

func (*mysql) enter(context.Context) (func(), error) { return func() {}, nil }

func (*mysql) begin(ctx context.Context, _ *Store, conn *sql.Conn, _ bool) (*sql.Tx, error) {
	return beginTx(ctx, conn, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

func (d *mysql) migrate(ctx context.Context, conn *sql.Conn, fn func() error) error {
	lock := fmt.Sprintf("CONCAT('onceward ', MD5(CONCAT(DATABASE(), '.%s')))", d.config.Prefix)
	var got sql.NullBool
	err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT GET_LOCK(%s, %d)", lock, int(migrationPatience.Seconds()))).Scan(&got)
	if err != nil {
		return err
	}
	if !got.Valid {
		return onceward.Permanent(errors.New("onceward: the data source name names no database"))
	}
	if !got.Bool {
		return fmt.Errorf("%w: another process is at it", onceward.ErrConflict)
	}
	err = fn()
	_, other := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+lock+")")
	return errors.Join(err, other)
}

func (*mysql) durable(ctx context.Context, conn *sql.Conn) error {
	var level int
	if err := conn.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit").Scan(&level); err != nil {
		return err
	}
	if level != 1 {
		return onceward.Permanent(fmt.Errorf("onceward: innodb_flush_log_at_trx_commit is %d: a power cut could take back a commit whose message is acknowledged; set it to 1, or accept that by sqlstore.Config.AllowLossyCommits", level))
	}
	return nil
}

// mostRounds is how often a claim is begun anew because records that were in its way have gone.
const mostRounds = 4

// claim inserts all, and where some are there already, looks which and inserts the others. A plain
// INSERT hides no error. What is parked or held is looked at after the insert, which may have waited
// for a transaction that parked.
func (d *mysql) claim(ctx context.Context, c *claim, part []int) (short []int, err error) {
	rest := part
	if !c.plain(part) {
		if rest, err = d.lockRows(ctx, c, part); err != nil {
			return nil, err
		}
	}
	for round := 0; len(rest) > 0; round++ {
		t := c.table(rest, true)
		for i := range t {
			t[i] = append([]any{c.num}, t[i]...)
		}
		_, err := c.s.exec(ctx, c.tx, d.stmts.own["Claim"], t)
		if err == nil {
			break
		}
		if mysqlNumber(err) != numberDuplicate {
			return nil, err
		}
		if round == mostRounds {
			return nil, fmt.Errorf("%w: %w", onceward.ErrConflict, err)
		}
		if rest, err = d.absent(ctx, c, rest); err != nil {
			return nil, err
		}
	}
	fresh := map[int]bool{}
	for _, i := range rest {
		fresh[i] = true
	}
	if err := d.giveBack(ctx, c, rest, fresh); err != nil {
		return nil, err
	}
	for _, i := range part {
		if !fresh[i] {
			short = append(short, i)
		}
	}
	return short, nil
}

// lockRows locks the rows that the records came with, and leaves out the records whose rows are lost.
func (d *mysql) lockRows(ctx context.Context, c *claim, part []int) (ours []int, err error) {
	var seqs []any
	for _, i := range part {
		if r := c.rs[i].Row; r != nil {
			seqs = append(seqs, r.Seq)
		}
	}
	fences := map[int64]int64{}
	err = c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
		var seq, fence int64
		err := scan(&seq, &fence)
		fences[seq] = fence
		return err
	}, d.stmts.own["LockRows"], seqs)
	for _, i := range part {
		r := c.rs[i].Row
		if r == nil {
			ours = append(ours, i)
		} else if fence, ok := fences[r.Seq]; ok && fence == r.Fence {
			ours = append(ours, i)
		}
	}
	return ours, err
}

// absent leaves out what the inbox has.
func (d *mysql) absent(ctx context.Context, c *claim, part []int) ([]int, error) {
	there := map[string]bool{}
	err := c.s.eachIn(ctx, c.tx, func(scan func(...any) error) error {
		var id []byte
		var fp int64
		err := scan(&id, &fp)
		there[string(id)] = true
		return err
	}, d.stmts.Finished, c.ids(part), c.num)
	return c.without(part, there), err
}

// giveBack deletes the records of messages that turn out to be parked or held.
func (d *mysql) giveBack(ctx context.Context, c *claim, part []int, fresh map[int]bool) error {
	var some bool
	if err := c.s.queryRow(ctx, c.tx, d.stmts.own["AnyParked"], c.consumer).Scan(&some); err != nil || !some {
		return err
	}
	k, err := c.known(ctx, part)
	if err != nil {
		return err
	}
	k.finished = nil // it has ours
	var ids []any
	for _, i := range part {
		if k.judge(&c.rs[i]) != 0 {
			delete(fresh, i)
			ids = append(ids, []byte(c.rs[i].ID))
		}
	}
	_, err = c.s.execIn(ctx, c.tx, d.stmts.Forget, ids, c.num)
	return err
}

func (d *mysql) purge(ctx context.Context, s *Store, p purging) (int, bool, error) {
	another := false
	n, more, err := s.purgeByKey(ctx, p, func(ctx context.Context, t *transaction, from, to []byte) (int, error) {
		var alone bool
		if err := t.tx.QueryRowContext(ctx, d.stmts.own["PurgeLock"]).Scan(&alone); err != nil || !alone {
			another = !alone
			return 0, err
		}
		n, err := s.exec(ctx, t.tx, d.stmts.Purge, p.args(from, to)...)
		_, other := t.tx.ExecContext(context.WithoutCancel(ctx), d.stmts.own["PurgeUnlock"])
		return n, errors.Join(err, other)
	})
	return n, more && !another, err
}

// mysqlWatch turns autocommit off in the session: what a handler does after a COMMIT of its own, or
// after a statement with an implicit one, is in a new transaction, which is rolled back.
type mysqlWatch struct {
	savepoint

	d    *mysql
	conn *sql.Conn
}

func (d *mysql) watch(conn *sql.Conn) watch {
	if d.config.TransactionPooling {
		return mysqlSavepoint{}
	}
	return &mysqlWatch{d: d, conn: conn}
}

func (w *mysqlWatch) before(ctx context.Context) error {
	_, err := w.conn.ExecContext(ctx, w.d.stmts.own["NoAutocommit"])
	return err
}

func (w *mysqlWatch) over(ctx context.Context, tx *sql.Tx, commit bool) error {
	return mysqlSavepoint{}.over(ctx, tx, commit)
}

// after comes after a ROLLBACK, but perhaps not of everything. Autocommit commits what is open.
func (w *mysqlWatch) after(committed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if !committed {
		if _, err := w.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
	_, err := w.conn.ExecContext(ctx, w.d.stmts.own["Autocommit"])
	return err
}

// mysqlSavepoint is savepoint, and tells that the connection is gone.
type mysqlSavepoint struct{ savepoint }

func (s mysqlSavepoint) over(ctx context.Context, tx *sql.Tx, commit bool) error {
	_, err := tx.ExecContext(ctx, endSavepoint(commit))
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, sql.ErrTxDone) && (mysqlNumber(err) == 0 || mysqlErrors{}.outage(err)):
		return fmt.Errorf("%w: %w", onceward.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", onceward.ErrTxEscaped, err)
}
