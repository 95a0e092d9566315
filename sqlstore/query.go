package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// chunk is how many rows, or values, a statement gets at most: times five parameters, well under
// SQLite's limit of 32766.
const chunk = 500

// each calls fn for every row of a query, and reads to the end, so that a statement that changes
// rows and returns them is carried out.
func (s *Store) each(ctx context.Context, q querier, fn func(scan func(dest ...any) error) error, query string, args ...any) error {
	query, args = s.dialect.bind(query, args)
	rs, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rs.Close()
	for rs.Next() {
		if err := fn(rs.Scan); err != nil {
			return err
		}
	}
	return rs.Err()
}

// eachIn is each for a statement that ends with a list, in as many statements as the values need.
func (s *Store) eachIn(ctx context.Context, q querier, fn func(scan func(dest ...any) error) error, stmt string, values []any, before ...any) error {
	for part := range slices.Chunk(values, chunk) {
		if err := s.each(ctx, q, fn, stmt, append(slices.Clone(before), list(part))...); err != nil {
			return err
		}
	}
	return nil
}

// execIn runs a statement that ends with a list, and returns how many rows it changed.
func (s *Store) execIn(ctx context.Context, q querier, stmt string, values []any, before ...any) (int, error) {
	total := 0
	for part := range slices.Chunk(values, chunk) {
		n, err := s.exec(ctx, q, stmt, append(slices.Clone(before), list(part))...)
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// exec runs a statement and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, q querier, stmt string, args ...any) (int, error) {
	stmt, args = s.dialect.bind(stmt, args)
	return affected(q.ExecContext(ctx, stmt, args...))
}

// execOften is exec for a statement that is worth preparing.
func (s *Store) execOften(ctx context.Context, tx *sql.Tx, stmt string, args ...any) (int, error) {
	stmt, args = s.dialect.bind(stmt, args)
	return affected(s.prepared.exec(ctx, tx, stmt, args...))
}

func (s *Store) queryRow(ctx context.Context, q querier, stmt string, args ...any) *sql.Row {
	stmt, args = s.dialect.bind(stmt, args)
	return q.QueryRowContext(ctx, stmt, args...)
}

func affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// millis rounds up, so that nothing is due before its time.
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
