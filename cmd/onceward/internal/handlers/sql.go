package handlers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
	"github.com/onceward/onceward/cmd/onceward/internal/sources"
	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

// SQL applies prepared statements in a transaction. It is safe for concurrent use.
type SQL struct {
	dialect    sqltext.Dialect
	params     []config.Param
	statements []*statement
	last       atomic.Pointer[bound]
}

type statement struct {
	prepared *sql.Stmt
	decimals decimals // other forms of it
	bytes    []bool   // which of args are bytes and no text; may be nil
	args     []int    // which of the parameters, in order
	rows     int      // expected; negative: any number
	at       string
}

// bound are the statements within one transaction, which messages of a batch share.
type bound struct {
	tx    *sql.Tx
	stmts map[*sql.Stmt]*sql.Stmt // by those that are prepared
}

// StatementError says which statement the database refused.
type StatementError struct {
	Index int
	Err   error
}

func (e *StatementError) Error() string { return e.Err.Error() }
func (e *StatementError) Unwrap() error { return e.Err }

// NewSQL prepares the statements of h. Its error is a [*StatementError] where the database refused
// one. Close frees them.
func NewSQL(ctx context.Context, db *database.Database, h *config.Handler) (*SQL, error) {
	s := &SQL{dialect: h.Dialect, params: h.Params}
	index := map[string]int{}
	for i, p := range h.Params {
		index[p.Name] = i
	}
	for i, c := range h.Statements {
		st := &statement{decimals: decimals{db: db.DB, sql: c.SQL}, rows: c.Rows, at: fmt.Sprintf("handler.sql[%d]", i)}
		if err := st.prepare(ctx, db, c.SQL.Text); err != nil {
			return nil, errors.Join(&StatementError{i, err}, s.Close())
		}
		for _, name := range c.SQL.Args {
			st.args = append(st.args, index[name])
		}
		s.statements = append(s.statements, st)
	}
	return s, nil
}

func (st *statement) prepare(ctx context.Context, db *database.Database, text string) (err error) {
	if st.bytes, err = db.BytesParams(ctx, text); err != nil {
		return err
	}
	st.prepared, err = db.DB.PrepareContext(ctx, text)
	return err
}

// Close frees the statements.
func (s *SQL) Close() error {
	var errs []error
	for _, st := range s.statements {
		errs = append(errs, st.prepared.Close(), st.decimals.close())
	}
	return errors.Join(errs...)
}

// Handle runs the statements for one message. A body without the parameters' values, and an
// unexpected number of rows, are permanent errors.
func (s *SQL) Handle(ctx context.Context, tx *sql.Tx, d *onceward.Delivery) error {
	if err := sources.TooLong(&d.Message); err != nil {
		return err
	}
	vs, err := values(s.dialect, s.params, d.Body)
	if err != nil {
		return err
	}
	b := s.bind(tx)
	var few [8]any
	for _, st := range s.statements {
		args := few[:0]
		for i, v := range st.args {
			args = append(args, st.arg(i, vs[v]))
		}
		res, err := st.exec(ctx, b, args)
		if err != nil {
			return fmt.Errorf("%s: %w", st.at, err)
		}
		if err := st.check(res); err != nil {
			return err
		}
	}
	return nil
}

// arg is a value as the i-th parameter.
func (st *statement) arg(i int, v any) any {
	if text, ok := v.(string); ok && st.bytes != nil && st.bytes[i] {
		return []byte(text)
	}
	return v
}

func (st *statement) exec(ctx context.Context, b *bound, args []any) (sql.Result, error) {
	prepared, text, err := st.form(ctx, args) //nolint:sqlclosecheck // Close does it
	if err != nil {
		return nil, err
	}
	if prepared == nil {
		return b.tx.ExecContext(ctx, text, args...)
	}
	here := b.stmts[prepared]
	if here == nil {
		here = b.tx.StmtContext(ctx, prepared) //nolint:sqlclosecheck // the end of the transaction does it
		b.stmts[prepared] = here
	}
	return here.ExecContext(ctx, args...)
}

func (st *statement) check(res sql.Result) error {
	if st.rows < 0 {
		return nil
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("%s: %w", st.at, err)
	}
	if n != int64(st.rows) {
		unit := "rows"
		if st.rows == 1 {
			unit = "row"
		}
		return onceward.Permanent(fmt.Errorf("%s: expected %d %s, got %d", st.at, st.rows, unit, n))
	}
	return nil
}

// bind returns the statements within tx, from the last call if it was the same transaction.
func (s *SQL) bind(tx *sql.Tx) *bound {
	if b := s.last.Load(); b != nil && b.tx == tx {
		return b
	}
	b := &bound{tx: tx, stmts: make(map[*sql.Stmt]*sql.Stmt, len(s.statements))}
	s.last.Store(b)
	return b
}
