package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

// checking makes the consumers to check, and changes nothing in the user's database. Where a run would
// first create the file, its tables or what the setup file makes, they are made in a scratch file with
// the same tables and no rows, in which all of that is done.
type checking struct {
	cfg   *config.Config
	found []database.Finding
	dir   string // of the scratch file; empty: none

	real, scratch *opened // nil: none
}

// open opens the database, or a scratch file where there is none yet.
func (c *checking) open(ctx context.Context) (*opened, error) {
	_, err := os.Stat(c.cfg.Store.Path)
	if c.cfg.Store.Path != "" && errors.Is(err, os.ErrNotExist) {
		c.note("the file does not exist yet; a run would create it")
		return c.openScratch(ctx)
	}
	c.real, err = open(c.cfg)
	return c.real, err
}

func (c *checking) note(text string) {
	c.found = append(c.found, database.Finding{Level: database.Note, What: text})
}

// build makes the consumers in w.store, which open has returned or which becomes the scratch file.
func (c *checking) build(ctx context.Context, w *worker) error {
	if c.real == nil {
		return w.build(ctx)
	}
	have, want, err := c.real.store.SchemaVersion(ctx)
	switch {
	case err != nil:
		return c.real.of(err)
	case have == want:
		return c.buildReady(ctx, w)
	case have > want || !c.real.db.OwnTables():
		return c.real.compare(have, want)
	}
	c.note("the tables of Onceward are missing or old; a run would create them")
	if w.store, err = c.openScratch(ctx); err != nil {
		return err
	}
	return w.build(ctx)
}

// buildReady is build in a database with tables. The setup file may make what statements need.
func (c *checking) buildReady(ctx context.Context, w *worker) error {
	refused := w.build(ctx)
	switch {
	case !isFault(refused) || c.cfg.Setup == "":
		return refused
	case !c.real.db.OwnTables():
		return errors.Join(refused, fmt.Errorf("check does not run the setup file %s, which may make what is missing", c.cfg.Setup))
	}
	o, err := c.openScratch(ctx)
	if err != nil {
		return refused
	}
	if w.store = o; w.build(ctx) != nil {
		return refused
	}
	c.note("the statements need what the setup file makes; a run would run it first")
	return c.real.store.Ready(ctx)
}

// openScratch makes the scratch file, and does in it what a run does at its start.
func (c *checking) openScratch(ctx context.Context) (_ *opened, err error) {
	if c.dir, err = os.MkdirTemp("", "onceward-check-"); err != nil {
		return nil, err
	}
	cfg := *c.cfg
	cfg.Store.Path = filepath.Join(c.dir, "check.db")
	if c.scratch, err = open(&cfg); err != nil {
		return nil, err
	}
	if c.real != nil {
		if err := copySchema(ctx, c.real, c.scratch); err != nil {
			return nil, err
		}
	}
	if err := c.scratch.makeTables(ctx); err != nil {
		return nil, err
	}
	return c.scratch, c.scratch.setup(ctx)
}

// close closes the databases and removes the scratch file. The consumers must be closed before.
func (c *checking) close() error {
	var errs []error
	for _, o := range []*opened{c.real, c.scratch} {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// copySchema makes the tables, indexes, views and triggers of from in to, except the store's own. What can't be made, such as
// the inner tables of a virtual table, is left out: a statement that needs it will say so.
func copySchema(ctx context.Context, from, to *opened) (err error) {
	rows, err := from.db.DB.QueryContext(ctx,
		`SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND tbl_name NOT LIKE 'onceward\_%' ESCAPE '\' ORDER BY type <> 'table', rowid`)
	if err != nil {
		return from.of(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return from.of(err)
		}
		_, _ = to.db.DB.ExecContext(ctx, text)
	}
	return rows.Err()
}
