package sqlstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceward/onceward"
)

// Migration is one step of the tables' history.
type Migration struct {
	Version int
	Name    string
	// Up is the SQL that leads from the version before to this one, and records it: statements that
	// each end in ';' before an empty line, to be run in one transaction.
	Up string
}

// Migrations returns every migration of a dialect, "sqlite", "postgres" or "mysql", in order and
// without a connection, for those who run SQL with a tool of their own. A nil config is the default
// one.
func Migrations(dialect string, c *Config) ([]Migration, error) {
	config, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	switch dialect {
	case "sqlite":
		return newSQLite(config).migrations()
	case "postgres":
		return newPostgres(config).migrations()
	case "mysql":
		return newMySQL(config).migrations()
	}
	return nil, fmt.Errorf("onceward: sqlstore knows no dialect %s, only sqlite, postgres and mysql", onceward.Quote(dialect))
}

func readMigrations(files embed.FS, dir string, fill *strings.Replacer) ([]Migration, error) {
	es, err := files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ms := make([]Migration, len(es))
	for i, e := range es {
		text, err := files.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("onceward: migration %s is not number %d", e.Name(), i+1)
		}
		ms[i] = Migration{Version: i + 1, Name: name, Up: fill.Replace(string(text))}
	}
	return ms, nil
}

// Migrate creates the tables, or brings them up to date, in one transaction; on MySQL, whose DDL knows
// none, in steps that can be repeated. It does nothing where they are up to date; several processes may
// run it at once. It is the only method that takes more than the right to read and write rows. Tables
// of a newer version are left alone, with an error that wraps [onceward.ErrNoSchema]. On SQLite it also
// sets the file's journal mode to WAL.
func (s *Store) Migrate(ctx context.Context) error {
	ms, err := s.dialect.migrations()
	if err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return s.fail(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // a connection goes back to the pool
	err = s.dialect.migrate(ctx, conn, func() error {
		have, err := s.version(ctx, conn)
		if err != nil {
			return err
		}
		if have > len(ms) {
			return wrongVersion(s, have, len(ms))
		}
		for _, m := range ms[have:] {
			if err := apply(ctx, conn, m); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(ctx, err)
}

func apply(ctx context.Context, conn querier, m Migration) error {
	for stmt := range strings.SplitSeq(m.Up, ";\n\n") {
		stmt = strings.TrimSuffix(strings.TrimSpace(stmt), ";")
		if stmt == "" {
			continue
		}
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("onceward: migration %d, %s: %w", m.Version, m.Name, err)
		}
	}
	return nil
}

// SchemaVersion returns the version of the tables in the database, 0 if there are none, and the one
// that this program needs.
func (s *Store) SchemaVersion(ctx context.Context) (have, want int, err error) {
	ms, err := s.dialect.migrations()
	if err != nil {
		return 0, 0, err
	}
	have, err = s.version(ctx, s.db)
	return have, len(ms), s.fail(ctx, err)
}

func (s *Store) version(ctx context.Context, q querier) (have int, err error) {
	var tables int
	if err := q.QueryRowContext(ctx, s.sql.HasSchema).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	err = q.QueryRowContext(ctx, s.sql.Version).Scan(&have)
	return have, err
}

// failRead is fail for methods that begin no transaction, which would have found out by itself that
// the tables are missing.
func (s *Store) failRead(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return s.fail(ctx, err)
	}
	have, want, other := s.SchemaVersion(ctx)
	if other == nil && have != want {
		return errors.Join(wrongVersion(s, have, want), err)
	}
	return s.failOwn(ctx, err)
}
