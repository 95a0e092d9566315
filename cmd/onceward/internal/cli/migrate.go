package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/onceward/onceward/sqlstore"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create the tables, or bring them up to date."`
	Status migrateStatusCmd `cmd:"" help:"Compare the tables with what this program needs."`
	Print  migratePrintCmd  `cmd:"" help:"Print the SQL, for a tool of your own; needs no database."`
}

type migrateUpCmd struct {
	Config string `arg:"" help:"The config file." placeholder:"CONFIG"`
	JSON   bool   `help:"Print the result as JSON."`
}

// Run is the command.
func (c *migrateUpCmd) Run(ctx context.Context, a *app) error {
	return migrate(ctx, a, c.Config, c.JSON, true)
}

type migrateStatusCmd struct {
	Config string `arg:"" help:"The config file." placeholder:"CONFIG"`
	JSON   bool   `help:"Print the result as JSON."`
}

// Run is the command.
func (c *migrateStatusCmd) Run(ctx context.Context, a *app) error {
	return migrate(ctx, a, c.Config, c.JSON, false)
}

// migrate reports the tables' version, after it has migrated if up is set. Tables that this program
// can't use are an error.
func migrate(ctx context.Context, a *app, file string, asJSON, up bool) (err error) {
	cfg, err := config.LoadStore(file)
	if err != nil {
		return err
	}
	o, err := open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if up {
		if err := o.store.Migrate(ctx); err != nil {
			return o.of(err)
		}
	}
	have, want, err := o.store.SchemaVersion(ctx)
	if err != nil {
		return o.of(err)
	}
	if asJSON {
		err = json.NewEncoder(a.out).Encode(map[string]int{"have": have, "want": want})
	} else {
		_, err = fmt.Fprintf(a.out, "%s: tables of version %d, version %d is needed\n", cfg.Store.Text, have, want)
	}
	return errors.Join(err, o.compare(have, want))
}

type migratePrintCmd struct {
	Config  string `arg:"" optional:"" help:"The config file, which says of which database, and table_prefix." placeholder:"CONFIG"`
	Dialect string `help:"Of which database without a config file: sqlite, postgres or mysql. The default is sqlite."`
	JSON    bool   `help:"Print as JSON."`
}

// Run is the command.
func (c *migratePrintCmd) Run(a *app) error {
	dialect, prefix := cmp.Or(c.Dialect, string(config.SQLite)), ""
	if c.Config != "" {
		cfg, err := config.LoadStore(c.Config)
		if err != nil {
			return err
		}
		dialect, prefix = cmp.Or(c.Dialect, string(cfg.Store.Kind)), cfg.Store.TablePrefix
	}
	ms, err := sqlstore.Migrations(dialect, &sqlstore.Config{Prefix: prefix})
	if err != nil {
		return &exitError{exitConfig, err}
	}
	for _, m := range ms {
		if c.JSON {
			err = json.NewEncoder(a.out).Encode(map[string]any{"version": m.Version, "name": m.Name, "up": m.Up})
		} else {
			_, err = fmt.Fprintf(a.out, "-- %d: %s\n%s\n", m.Version, m.Name, m.Up)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
