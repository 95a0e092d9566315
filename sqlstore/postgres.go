package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

//go:embed postgres
var postgresFiles embed.FS

// Postgres is a store in a Postgres database, version 14 or later, through any driver; those of
// github.com/jackc/pgx/v5/stdlib and github.com/lib/pq are tested. The tables are in the first schema
// of the search_path. The pool should have at least two connections. Postgres returns at once; the
// first use connects.
//
// Transactions run at READ COMMITTED whatever default_transaction_isolation says.
func Postgres(db *sql.DB, c *Config) (*Store, error) {
	return open(db, c, newPostgres)
}

type postgres struct {
	postgresErrors
	config Config
	stmts  *statements
}

func newPostgres(c Config) *postgres {
	d := &postgres{config: c}
	d.stmts = parseStatements(embedded(postgresFiles, "postgres/statements.sql"), d.fill(),
		"OwnSettings", "Guard", "Permit", "Claim", "ClaimRows", "PurgeLock", "PurgePages")
	return d
}

func (*postgres) name() string { return "Postgres" }

func (d *postgres) fill() *strings.Replacer {
	return strings.NewReplacer("{p}", d.config.Prefix,
		"{now}", "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
		"{retries}", fmt.Sprintf(`'\x%x'::bytea`, onceward.Retries),
		"{patience}", strconv.FormatInt(max(millis(d.config.LockTimeout), 1), 10))
}

func (d *postgres) statements() *statements { return d.stmts }

func (d *postgres) migrations() ([]Migration, error) {
	return readMigrations(postgresFiles, "postgres/migrations", d.fill())
}

func (*postgres) bind(stmt string, args []any) (string, []any) { return bindNumbers(stmt, args) }

func (*postgres) oneWriter() bool { return false }

func (*postgres) enter(context.Context) (func(), error) { return func() {}, nil }

func (d *postgres) begin(ctx context.Context, _ *Store, conn *sql.Conn, foreign bool) (*sql.Tx, error) {
	tx, err := beginTx(ctx, conn, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	if !foreign {
		_, err = tx.ExecContext(ctx, d.stmts.own["OwnSettings"])
	}
	if err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

func (d *postgres) migrate(ctx context.Context, conn *sql.Conn, fn func() error) (err error) {
	if _, err = conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		end := "COMMIT"
		if err != nil {
			end = "ROLLBACK"
		}
		_, other := conn.ExecContext(context.WithoutCancel(ctx), end)
		err = errors.Join(err, other)
	}()
	_, err = conn.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; SELECT pg_advisory_xact_lock(hashtext(current_schema() || '.%s'), 0)",
		millis(migrationPatience), d.config.Prefix))
	if err != nil {
		return err
	}
	return fn()
}

func (*postgres) durable(ctx context.Context, conn *sql.Conn) error {
	for _, setting := range []string{"synchronous_commit", "fsync"} {
		var value string
		if err := conn.QueryRowContext(ctx, "SELECT current_setting('"+setting+"')").Scan(&value); err != nil {
			return err
		}
		if value == "off" {
			return onceward.Permanent(fmt.Errorf("onceward: %s is off: a power cut could take back a commit whose message is acknowledged; set it to on, for the role if not for the server, or accept that by sqlstore.Config.AllowLossyCommits", setting))
		}
	}
	return nil
}

func (d *postgres) claim(ctx context.Context, c *claim, part []int) ([]int, error) {
	plain := c.plain(part)
	stmt := d.stmts.own["ClaimRows"]
	if plain {
		stmt = d.stmts.own["Claim"]
	}
	missing := map[string]bool{}
	err := c.s.each(ctx, c.tx, func(scan func(...any) error) error {
		var id []byte
		err := scan(&id)
		missing[string(id)] = true
		return err
	}, stmt, c.num, c.consumer, c.table(part, plain))
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(part), func(i int) bool { return !missing[c.rs[i].ID] }), nil
}

// purgePages is how many pages of the inbox one stretch has.
const purgePages = 64

// purge walks along the heap by ranges of ctid.
func (d *postgres) purge(ctx context.Context, s *Store, p purging) (n int, more bool, err error) {
	from, _ := strconv.ParseInt(string(s.hands.get(p.consumer)), 10, 64)
	to := from + purgePages
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		var pages int64
		var alone bool
		if err := t.tx.QueryRowContext(ctx, d.stmts.own["PurgeLock"]).Scan(&alone); err != nil || !alone {
			return err
		}
		if err := t.tx.QueryRowContext(ctx, d.stmts.own["PurgePages"]).Scan(&pages); err != nil {
			return err
		}
		more = to < pages
		n, err = s.exec(ctx, t.tx, d.stmts.Purge, fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to), p.num, millis(p.keep), []byte(p.consumer), p.limit)
		return err
	})
	if err != nil || n == p.limit {
		return n, true, err // the hand stays: there may be more in this stretch
	}
	if !more {
		to = 0
	}
	s.hands.set(p.consumer, strconv.AppendInt(nil, to, 10))
	return n, more, nil
}

// postgresGuard makes every COMMIT but ours break a deferred constraint, and what follows the end of
// the transaction a write in a read-only one. See docs/decisions.
type postgresGuard struct {
	d    *postgres
	conn *sql.Conn
}

func (d *postgres) watch(conn *sql.Conn) watch {
	if d.config.TransactionPooling {
		return postgresSavepoint{}
	}
	return &postgresGuard{d, conn}
}

func (*postgresGuard) guards() bool { return true }

// before comes before BEGIN, for a ROLLBACK would take the setting back too.
func (g *postgresGuard) before(ctx context.Context) error {
	_, err := g.conn.ExecContext(ctx, "SET default_transaction_read_only = on")
	return err
}

func (g *postgresGuard) begun(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, g.d.stmts.own["Guard"])
	return err
}

func (g *postgresGuard) over(ctx context.Context, tx *sql.Tx, commit bool) error {
	if !commit {
		return postgresEnded(ctx, tx, endSavepoint(false), onceward.ErrTxEnded)
	}
	return postgresEnded(ctx, tx, g.d.stmts.own["Permit"], onceward.ErrTxEnded)
}

func (g *postgresGuard) after(committed bool) error {
	if committed {
		return nil // the setting went with it
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := g.conn.ExecContext(ctx, "RESET default_transaction_read_only")
	return err
}

// postgresSavepoint is savepoint, with what Postgres knows of an aborted transaction.
type postgresSavepoint struct{ savepoint }

func (postgresSavepoint) over(ctx context.Context, tx *sql.Tx, commit bool) error {
	return postgresEnded(ctx, tx, endSavepoint(commit), onceward.ErrTxEscaped)
}

// postgresEnded runs the last statement before the end. Where it is refused because the handler has
// swallowed an error, nothing was done since; else the transaction is another one, or none.
func postgresEnded(ctx context.Context, tx *sql.Tx, stmt string, ended error) error {
	_, err := tx.ExecContext(ctx, stmt)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: %w", ended, err)
	case sqlState(err) == "", postgresErrors{}.outage(sqlState(err)):
		return fmt.Errorf("%w: %w", onceward.ErrUnavailable, err)
	case sqlState(err) == stateAborted:
		if _, other := tx.ExecContext(ctx, endSavepoint(false)); other == nil {
			ended = onceward.ErrTxEnded
		}
		return fmt.Errorf("%w: an error of a statement was swallowed: %w", ended, err)
	}
	return fmt.Errorf("%w: %w", ended, err)
}
