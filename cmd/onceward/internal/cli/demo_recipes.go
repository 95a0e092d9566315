package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/onceward/onceward/cmd/onceward/internal/database"
	"github.com/onceward/onceward/cmd/onceward/internal/sources"
)

// demoWorkerCmd is what the demo starts to compare with: recipes as they are written by hand.
type demoWorkerCmd struct {
	Recipe string `arg:"" enum:"lookup,effect-first,mark-first" help:"Which."`
	Dir    string `arg:"" help:"The demo's directory."`
}

type payment struct {
	ID      string `json:"payment_id"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// recipe has the statements that all recipes share.
type recipe struct {
	db                        *sql.DB
	seen, mark, update, enter *sql.Stmt
}

// Run is the command.
func (c *demoWorkerCmd) Run(ctx context.Context) (err error) {
	f, err := os.Open(filepath.Join(c.Dir, "payments.ndjson"))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	db, err := sql.Open("sqlite", database.SQLiteDSN(filepath.Join(c.Dir, "demo.db"))+"&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	r := &recipe{db: db}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	// The look-up comes first in each of them; what differs is which transactions follow.
	steps := map[string][][]func(context.Context, *sql.Tx, *payment) error{
		"lookup":       {{r.effect, r.remember}},
		"effect-first": {{r.effect}, {r.remember}},
		"mark-first":   {{r.remember}, {r.effect}},
	}[c.Recipe]
	return sources.EachLine(f, func(_ int64, body []byte) error {
		var p payment
		if err := json.Unmarshal(body, &p); err != nil {
			return err
		}
		return r.apply(ctx, &p, steps)
	})
}

// prepare prepares the statements, which are closed with the database.
func (r *recipe) prepare(ctx context.Context) error {
	for text, stmt := range map[string]**sql.Stmt{
		"SELECT count(*) FROM seen WHERE id = ?":                   &r.seen,
		"INSERT INTO seen VALUES (?)":                              &r.mark,
		"UPDATE accounts SET cents = cents + ? WHERE id = ?":       &r.update,
		"INSERT INTO ledger (id, account, cents) VALUES (?, ?, ?)": &r.enter,
	} {
		var err error
		if *stmt, err = r.db.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // see above
			return err
		}
	}
	return nil
}

func (r *recipe) apply(ctx context.Context, p *payment, transactions [][]func(context.Context, *sql.Tx, *payment) error) error {
	var seen int
	if err := r.seen.QueryRowContext(ctx, p.ID).Scan(&seen); err != nil || seen > 0 {
		return err
	}
	for _, steps := range transactions {
		tx, err := r.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err := step(ctx, tx, p); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (r *recipe) effect(ctx context.Context, tx *sql.Tx, p *payment) error {
	if err := within(ctx, tx, r.update, p.Cents, p.Account); err != nil {
		return err
	}
	return within(ctx, tx, r.enter, p.ID, p.Account, p.Cents)
}

func (r *recipe) remember(ctx context.Context, tx *sql.Tx, p *payment) error {
	return within(ctx, tx, r.mark, p.ID)
}

// within runs a prepared statement in a transaction.
func within(ctx context.Context, tx *sql.Tx, prepared *sql.Stmt, args ...any) error {
	stmt := tx.StmtContext(ctx, prepared)
	defer stmt.Close() //nolint:errcheck // it goes with the transaction
	_, err := stmt.ExecContext(ctx, args...)
	return err
}
