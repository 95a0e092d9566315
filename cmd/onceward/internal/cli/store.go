package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/onceward/onceward/sqlstore"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

// opened is a config file together with its open store.
type opened struct {
	*config.Config
	db    *database.Database
	store *sqlstore.Store
}

// openStore opens the database of a config file, for commands that look into it. It does not create
// it, and needs its tables.
func openStore(ctx context.Context, file string) (*opened, error) {
	cfg, err := config.LoadStore(file)
	if err != nil {
		return nil, err
	}
	if path := cfg.Store.Path; path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("the database %s does not exist yet; onceward run, publish or migrate up create it", path)
		}
	}
	o, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err := o.needTables(ctx); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// open opens the database of a config and creates its file if need be, but no tables.
func open(cfg *config.Config) (*opened, error) {
	db, err := database.Open(cfg.Store)
	if err != nil {
		return nil, cfg.Errorf("store", "%v", err)
	}
	return &opened{cfg, db, db.Store}, nil
}

// Close closes the database.
func (o *opened) Close() error { return o.db.Close() }

// makeTables creates the store's tables where the program does that by itself, and else needs them.
func (o *opened) makeTables(ctx context.Context) error {
	if !o.db.OwnTables() {
		return o.needTables(ctx)
	}
	return o.of(o.store.Migrate(ctx))
}

// needTables refuses a database without tables that this program can use.
func (o *opened) needTables(ctx context.Context) error {
	have, want, err := o.store.SchemaVersion(ctx)
	if err != nil {
		return o.of(err)
	}
	return o.compare(have, want)
}

// of says which database an error is of.
func (o *opened) of(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the database %s: %w", o.Store.Text, err)
}

// compare is nil if the tables have the version that is needed.
func (o *opened) compare(have, want int) error {
	db := "the database " + o.Store.Text
	switch {
	case have == 0:
		return fmt.Errorf("%s has no tables of Onceward yet; run: onceward migrate up %s", db, o.File)
	case have < want:
		return fmt.Errorf("%s has tables of version %d, and this program needs version %d; run: onceward migrate up %s", db, have, want, o.File)
	case have > want:
		return fmt.Errorf("%s has tables of version %d, and this program knows version %d only; use a newer program", db, have, want)
	}
	return nil
}

// setup runs the user's own SQL file.
func (o *opened) setup(ctx context.Context) error {
	if o.Setup == "" {
		return nil
	}
	text, err := os.ReadFile(o.Setup)
	if err != nil {
		return o.Errorf("setup", "%v", err)
	}
	switch err = o.db.Setup(ctx, string(text)); {
	case err == nil:
		return nil
	case errors.Is(err, database.ErrOpenTransaction):
		return o.Errorf("setup", "%s: %v", o.Setup, database.ErrOpenTransaction)
	case o.db.Fault(err):
		return o.Errorf("setup", "%s: %s", o.Setup, o.db.Refusal(err))
	}
	return fmt.Errorf("setup %s: %w", o.Setup, err)
}
