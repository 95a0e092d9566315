package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

// Error numbers of MySQL and MariaDB.
const (
	mysqlInTransaction = 1568 // its characteristics can't be changed now
	mysqlFirst         = 1000 // of the server's errors
)

type mysqlServer struct {
	config config.Store
	driver *mysql.Config
}

// openMySQL: rows are counted when they match, as other databases do, even if they stay what they were.
func openMySQL(c config.Store) (*sql.DB, server, error) {
	cfg := mysql.NewConfig()
	cfg.User = c.URL.User.Username()
	cfg.Passwd, _ = c.URL.User.Password()
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(c.URL.Hostname(), "3306")
	if port := c.URL.Port(); port != "" {
		cfg.Addr = net.JoinHostPort(c.URL.Hostname(), port)
	}
	cfg.DBName = strings.Trim(c.URL.Path, "/")
	cfg.TLSConfig = c.URL.Query().Get("tls")
	cfg.Timeout = connectTimeout
	cfg.ClientFoundRows = true
	cfg.InterpolateParams = true         // what is not prepared takes one round trip then, and else three
	cfg.Collation = "utf8mb4_general_ci" // it says the character set; comparisons follow the columns' collation
	cfg.Logger = &mysql.NopLogger{}      // the errors come back, and are logged where they are dealt with
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("the driver does not understand it: %w; tls is one of true, false, skip-verify, preferred", err)
	}
	return pool(sql.OpenDB(connector)), &mysqlServer{c, cfg}, nil
}

// setup has a connection of its own that takes several statements at once, which others must not: a
// text that is put into one of theirs by mistake would be run.
func (m *mysqlServer) setup(ctx context.Context, _ *sql.DB, text string) (err error) {
	cfg := m.driver.Clone()
	cfg.MultiStatements = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }() // and with it the lock is given back
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	const lock = "SELECT GET_LOCK(CONCAT('onceward setup ', MD5(DATABASE())), 60)"
	if err := conn.QueryRowContext(ctx, lock).Scan(new(sql.NullInt64)); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, text); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == mysqlInTransaction {
		return ErrOpenTransaction
	}
	return err
}

// fault: the server's own numbers are of mistakes, unless they tell of its state or the connection.
func (*mysqlServer) fault(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok || e.Number < mysqlFirst {
		return false
	}
	switch e.Number {
	case 1021, 1037, 1038, 1040, 1041, 1042, 1043, 1044, 1045, 1049, 1053, 1114, 1129, 1130, 1152, 1158, 1159, 1160, 1161,
		1203, 1205, 1213, 1226, 1290, 1792, 1836, 1927, 1969, 3024:
		return false
	}
	return true
}

func (*mysqlServer) refusal(err error) string { return err.Error() }

// mysqlSettings are what the server says about itself.
type mysqlSettings struct {
	version, mode, level, format    string
	flush, syncLog, logging, closed int
}

func (s *mysqlSettings) read(ctx context.Context, db *sql.DB) error {
	err := db.QueryRowContext(ctx, "SELECT VERSION(), @@sql_mode, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, @@binlog_format, @@read_only").Scan(
		&s.version, &s.mode, &s.flush, &s.logging, &s.syncLog, &s.format, &s.closed)
	if err != nil {
		return err
	}
	name := "transaction_isolation"
	if s.mariaDB() {
		name = "tx_isolation" // the new name came with 11.1
	}
	return db.QueryRowContext(ctx, "SELECT @@"+name).Scan(&s.level)
}

func (s *mysqlSettings) mariaDB() bool { return strings.Contains(s.version, "MariaDB") }

// older reports whether the version is before major.minor.
func (s *mysqlSettings) older(major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(s.version, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}

func (m *mysqlServer) inspect(ctx context.Context, db *sql.DB) (*Report, error) {
	var s mysqlSettings
	if err := s.read(ctx, db); err != nil {
		return nil, err
	}
	number, _, _ := strings.Cut(s.version, "-")
	r := &Report{Server: "MySQL " + number}
	if s.mariaDB() {
		r.Server = "MariaDB " + number
		if s.older(10, 6) {
			r.add(Error, r.Server+" is too old", "use MariaDB 10.6 or later")
		}
	} else if s.older(8, 0) {
		r.add(Error, r.Server+" is too old", "use MySQL 8.0 or later")
	}
	m.durability(&s, r)
	modes(s.mode, r)
	if s.level != "READ-COMMITTED" {
		r.add(Note, "the default isolation level is "+s.level+"; Onceward's transactions run at READ-COMMITTED all the same", "")
	}
	return r, errors.Join(m.engines(ctx, db, r), m.collations(ctx, db, r))
}

func (m *mysqlServer) durability(s *mysqlSettings, r *Report) {
	if s.closed != 0 {
		r.add(Error, "the server is read_only, as a replica is", "name the primary; or SET GLOBAL read_only = 0")
	}
	if s.flush != 1 {
		r.add(lossy(m.config), fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a power cut can take back a commit whose message is acknowledged", s.flush),
			"set it to 1, or accept that by allow_lossy_commits=true in store")
	}
	if s.logging == 0 {
		return
	}
	if s.syncLog != 1 {
		r.add(Warning, fmt.Sprintf("sync_binlog is %d: after a power cut replicas can have more, or less, than this server", s.syncLog), "set it to 1 where there are replicas")
	}
	if s.format == "STATEMENT" {
		r.add(Error, "binlog_format is STATEMENT, with which InnoDB refuses writes at READ COMMITTED", "set it to ROW or MIXED")
	}
}

func modes(mode string, r *Report) {
	if !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		r.add(Warning, "sql_mode is not strict: a value that does not fit a column is cut, and the message counts as processed", "add STRICT_TRANS_TABLES to sql_mode")
	}
	if strings.Contains(mode, "NO_BACKSLASH_ESCAPES") {
		r.add(Warning, "sql_mode has NO_BACKSLASH_ESCAPES, and the parameters of statements are found as if it had not", "write no backslash before a quote in the statements of handlers")
	}
}

// engines looks for tables that take no part in transactions.
func (*mysqlServer) engines(ctx context.Context, db *sql.DB, r *Report) error {
	return each(ctx, db, `SELECT table_name, engine FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND engine NOT IN ('InnoDB', 'ROCKSDB', 'ndbcluster')
		ORDER BY table_name LIMIT 5`, func(table, engine string) {
		r.add(Warning, fmt.Sprintf("the table %s is of engine %s, which has no transactions: what a handler does to it stays when the message fails, and is done again", table, engine),
			"ALTER TABLE "+table+" ENGINE = InnoDB")
	})
}

// collations looks for keys that take different texts for the same.
func (*mysqlServer) collations(ctx context.Context, db *sql.DB, r *Report) error {
	return each(ctx, db, `SELECT DISTINCT CONCAT(s.table_name, '.', s.column_name), c.collation_name
		FROM information_schema.statistics s JOIN information_schema.columns c
			ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name
		WHERE s.table_schema = DATABASE() AND s.non_unique = 0 AND c.collation_name LIKE '%\_ci' ORDER BY 1 LIMIT 5`, func(column, collation string) {
		r.add(Warning, fmt.Sprintf("the key %s compares by %s, for which texts that differ in case or accents are the same", column, collation),
			"unless that is meant, give the column COLLATE utf8mb4_bin")
	})
}

func each(ctx context.Context, db *sql.DB, query string, f func(a, b string)) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		f(a, b)
	}
	return rows.Err()
}
