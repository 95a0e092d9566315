package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

const connectTimeout = 10 * time.Second

type postgres struct{ config config.Store }

func openPostgres(c config.Store) (*sql.DB, server, error) {
	cfg, err := pgx.ParseConfig(c.URL.String())
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), "`: ") // before it stands the URL
		return nil, nil, fmt.Errorf("the driver does not understand it: %s", why)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "onceward"
	}
	return pool(stdlib.OpenDB(*cfg)), &postgres{c}, nil
}

// setup: several statements without a transaction of their own are one transaction to Postgres.
func (p *postgres) setup(ctx context.Context, db *sql.DB, text string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if !p.config.TransactionPooling { // else a session has no locks
		const name = "hashtext('onceward setup ' || current_database())"
		if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock("+name+")"); err != nil {
			return err
		}
		defer func() {
			_, other := conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock("+name+")")
			err = errors.Join(err, other)
		}()
	}
	_, err = conn.ExecContext(ctx, text)
	status := byte('I')
	_ = conn.Raw(func(c any) error {
		if c, ok := c.(*stdlib.Conn); ok && !c.Conn().IsClosed() {
			status = c.Conn().PgConn().TxStatus()
		}
		return nil
	})
	if status != 'I' {
		_, other := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		if err == nil {
			err = errors.Join(ErrOpenTransaction, other)
		}
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Position > 0 {
		err = fmt.Errorf("line %d: %w", 1+strings.Count(string([]rune(text)[:min(int(e.Position)-1, len([]rune(text)))]), "\n"), err)
	}
	return err
}

func (*postgres) bytesParams(ctx context.Context, db *sql.DB, stmt string) (are []bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = conn.Raw(func(c any) error {
		raw, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("%T is no connection to Postgres", c)
		}
		d, err := raw.Conn().Prepare(ctx, "", stmt)
		if err != nil {
			return err
		}
		for _, oid := range d.ParamOIDs {
			are = append(are, oid == pgtype.ByteaOID)
		}
		return nil
	})
	return are, err
}

func (*postgres) fault(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) != 5 {
		return false
	}
	switch e.Code[:2] {
	case "0A", "21", "22", "23", "25", "26", "2B", "2F", "39", "42", "44", "P0": // what a statement can be wrong in
		return true
	}
	return false
}

func (*postgres) refusal(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		parts := []string{e.Message, e.Detail, e.Hint}
		if e.Code == "42P08" || e.Code == "42P18" {
			parts = append(parts, "say the parameter's type, as in :name::text")
		}
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		return strings.Join(parts, "; ") + " (SQLSTATE " + e.Code + ")"
	}
	return err.Error()
}

// settings are what the server says about itself.
type postgresSettings struct {
	number                                         int
	version, readOnly, commit, fsync, pages, level string
	encoding, schema, idle                         string
	replica                                        bool
}

func (s *postgresSettings) read(ctx context.Context, db *sql.DB) error {
	return db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'),
		pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
		current_setting('fsync'), current_setting('full_page_writes'), current_setting('default_transaction_isolation'),
		current_setting('server_encoding'), coalesce(current_schema(), ''),
		current_setting('idle_in_transaction_session_timeout')`).Scan(
		&s.number, &s.version, &s.replica, &s.readOnly, &s.commit, &s.fsync, &s.pages, &s.level, &s.encoding, &s.schema, &s.idle)
}

func (p *postgres) inspect(ctx context.Context, db *sql.DB) (*Report, error) {
	var s postgresSettings
	if err := s.read(ctx, db); err != nil {
		return nil, err
	}
	version, _, _ := strings.Cut(s.version, " ")
	r := &Report{Server: "Postgres " + version}
	if s.number < 140000 {
		r.add(Error, "Postgres "+version+" is too old", "use Postgres 14 or later")
	}
	if s.replica {
		r.add(Error, "the server is a replica, which takes no writes", "name the primary, or all servers with target_session_attrs=read-write")
	} else if s.readOnly == "on" {
		r.add(Error, "default_transaction_read_only is on", "ALTER ROLE … SET default_transaction_read_only = off, or the same for the database")
	}
	if s.commit == "off" || s.fsync == "off" {
		r.add(lossy(p.config), fmt.Sprintf("synchronous_commit is %s and fsync is %s: a power cut can take back a commit whose message is acknowledged", s.commit, s.fsync),
			"ALTER ROLE … SET synchronous_commit = on, and fsync = on in postgresql.conf; or accept it by allow_lossy_commits=true in store")
	}
	if s.pages == "off" {
		r.add(Warning, "full_page_writes is off: a power cut can damage the database", "set full_page_writes = on in postgresql.conf")
	}
	if s.level != "read committed" {
		r.add(Note, "default_transaction_isolation is "+s.level+"; Onceward's transactions run at read committed all the same", "")
	}
	if s.encoding != "UTF8" {
		r.add(Warning, "the database's encoding is "+s.encoding+": texts that it can't hold become dead letters", "use a database with encoding UTF8")
	}
	if s.schema == "" {
		r.add(Error, "the search_path names no schema that exists", "CREATE SCHEMA, or set search_path for the role or by search_path=NAME in store")
	}
	if s.idle != "0" {
		r.add(Note, "idle_in_transaction_session_timeout is "+s.idle+": a handler's statements must follow each other faster", "")
	}
	return r, p.old(ctx, db, r)
}

// old looks for what keeps Postgres from reusing the space of deleted rows.
func (*postgres) old(ctx context.Context, db *sql.DB, r *Report) error {
	rows, err := db.QueryContext(ctx, `SELECT what, floor(extract(epoch FROM age))::bigint FROM (
		SELECT 'the transaction of process ' || pid || ', user ' || coalesce(usename, '?') || ', application "' || coalesce(application_name, '') || '",' AS what,
			clock_timestamp() - xact_start AS age
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
		UNION ALL
		SELECT 'the prepared transaction "' || gid || '"', clock_timestamp() - prepared FROM pg_prepared_xacts WHERE database = current_database()
		) t WHERE age > interval '5 minutes' ORDER BY age DESC LIMIT 3`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var what string
		var seconds int64
		if err := rows.Scan(&what, &seconds); err != nil {
			return err
		}
		r.add(Warning, fmt.Sprintf("%s is open for %s: until it ends, the space of deleted rows can't be used again and the store's tables grow", what, time.Duration(seconds)*time.Second),
			"end it; idle_in_transaction_session_timeout prevents such")
	}
	return rows.Err()
}
