package handlers

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

// mostForms is how many forms of one statement stay prepared. Amounts of money have few.
const mostForms = 16

// decimals are the forms of a statement whose decimal numbers MySQL knows to be such. Otherwise it
// would compute with binary floating-point numbers. It is safe for concurrent use.
type decimals struct {
	db  *sql.DB
	sql *sqltext.Statement

	mu    sync.Mutex
	forms map[string]*sql.Stmt
}

// form returns the form of the statement that fits args, or its text if it is not prepared. It
// replaces the decimals in args by what the driver takes.
func (st *statement) form(ctx context.Context, args []any) (*sql.Stmt, string, error) {
	places := make([]int, 0, 8)
	some := false
	for i, a := range args {
		d, ok := a.(decimal)
		if !ok {
			places = append(places, -1)
			continue
		}
		some = true
		places = append(places, d.places)
		args[i] = d.text
	}
	if !some {
		return st.prepared, "", nil
	}
	return st.decimals.form(ctx, places)
}

func (f *decimals) form(ctx context.Context, places []int) (*sql.Stmt, string, error) {
	key := make([]byte, len(places))
	for i, n := range places {
		key[i] = byte(n + 1) //nolint:gosec // -1 to 30
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.forms[string(key)]; s != nil {
		return s, "", nil
	}
	text := f.sql.Decimals(places)
	if len(f.forms) == mostForms {
		return nil, text, nil
	}
	s, err := f.db.PrepareContext(ctx, text) //nolint:sqlclosecheck // close does it
	if err != nil {
		return nil, "", err
	}
	if f.forms == nil {
		f.forms = map[string]*sql.Stmt{}
	}
	f.forms[string(key)] = s
	return s, "", nil
}

func (f *decimals) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, s := range f.forms {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
