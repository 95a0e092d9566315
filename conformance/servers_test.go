package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
	"github.com/onceward/onceward/storetest"
)

// server is a database server, as reached through one driver.
type server struct {
	driver string
	dsn    func(t testing.TB, settings map[string]string) string // of a database and session with settings
	open   func(*sql.DB, *sqlstore.Config) (*sqlstore.Store, error)
	mark   string // the first placeholder
	ends   []string
	kill   string // ends the connection whose number is given
	number string // tells a connection's number
}

// Connections are cut on purpose, which the driver would report.
var quietMySQL = sync.OnceFunc(func() { _ = mysql.SetLogger(&mysql.NopLogger{}) })

func needs(t testing.TB, variable string) string {
	t.Helper()
	dsn := os.Getenv(variable)
	if dsn == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set: run the tests by scripts/test", variable)
		}
		t.Skipf("NOT TESTED, for want of a server: %s is not set; scripts/services up starts one and prints it", variable)
	}
	return dsn
}

func postgresDSN(t testing.TB, settings map[string]string) string {
	t.Helper()
	u, err := url.Parse(needs(t, "ONCEWARD_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, value := range settings {
		switch name {
		case "user":
			u.User = url.User(value)
		case "host":
			u.Host = value
		case "database":
			u.Path = value
		default:
			q.Set(name, value)
		}
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String()
}

func mysqlDSN(t testing.TB, settings map[string]string) string {
	t.Helper()
	c, err := mysql.ParseDSN(needs(t, "ONCEWARD_MYSQL"))
	if err != nil {
		t.Fatal(err)
	}
	c.DBName = "onceward_test"
	quietMySQL()
	c.Params = map[string]string{}
	for name, value := range settings {
		switch name {
		case "user":
			c.User = value
		case "host":
			c.Addr = value
		case "database":
			c.DBName = value
		case "interpolateParams":
			c.InterpolateParams = true
		case "clientFoundRows":
			c.ClientFoundRows = true
		default:
			c.Params[name] = value
		}
	}
	return c.FormatDSN()
}

var (
	pgxServer = &server{
		driver: "pgx", dsn: postgresDSN, open: sqlstore.Postgres, mark: "$1",
		ends: []string{
			"COMMIT", "END", "ROLLBACK", "ABORT", "ROLLBACK; BEGIN", "COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
			"ROLLBACK; INSERT INTO {p}effects VALUES ('after')", "COMMIT; INSERT INTO {p}effects VALUES ('after')",
			"ROLLBACK; CREATE TABLE {p}escaped (x int)", "PREPARE TRANSACTION 'escaped'",
		},
		kill: "SELECT pg_terminate_backend(%d)", number: "SELECT pg_backend_pid()",
	}
	pqServer    = pgxServer.through("postgres")
	mysqlServer = &server{
		driver: "mysql", dsn: mysqlDSN, open: sqlstore.MySQL, mark: "?",
		ends: []string{"COMMIT", "ROLLBACK", "START TRANSACTION", "CREATE TABLE {p}escaped (x int)", "TRUNCATE {p}attempts", "COMMIT AND CHAIN"},
		kill: "KILL %d", number: "SELECT CONNECTION_ID()",
	}
)

func (s *server) through(driver string) *server {
	other := *s
	other.driver = driver
	return &other
}

// database opens a pool of connections, in the database of the tests.
func (s *server) database(t testing.TB, settings map[string]string) *sql.DB {
	t.Helper()
	if s.driver == "mysql" && settings["database"] == "" {
		s.create(t)
	}
	db, err := sql.Open(s.driver, s.dsn(t, settings))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// create makes the database of the tests on MySQL. Its default collation folds nearly everything.
func (s *server) create(t testing.TB) {
	t.Helper()
	db := s.database(t, map[string]string{"database": "mysql"})
	must(t, db, "CREATE DATABASE IF NOT EXISTS onceward_test CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	_ = db.Close()
}

func must(t testing.TB, db *sql.DB, stmts ...string) {
	t.Helper()
	for _, stmt := range stmts {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

// place is a store's own tables on a server, beside one for effects.
type place struct {
	*server

	db     *sql.DB
	prefix string
	store  *sqlstore.Store
}

// place makes tables with a prefix of their own, which go when the test ends.
func (s *server) place(t testing.TB, settings map[string]string) *place {
	t.Helper()
	p := s.bare(t, settings)
	if err := p.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, p.db, fmt.Sprintf("CREATE TABLE %seffects (id VARCHAR(300) NOT NULL)", p.prefix))
	return p
}

// bare is a place without tables.
func (s *server) bare(t testing.TB, settings map[string]string) *place {
	t.Helper()
	p := &place{server: s, db: s.database(t, settings), prefix: fmt.Sprintf("t%08x_", rand.Uint32())}
	t.Cleanup(func() { p.drop(t) })
	p.store = p.another(t, p.db)
	return p
}

func (p *place) another(t testing.TB, db *sql.DB) *sqlstore.Store {
	t.Helper()
	s, err := p.open(db, &sqlstore.Config{Prefix: p.prefix, LockTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *place) drop(t testing.TB) {
	t.Helper()
	cascade := ""
	if p.driver != "mysql" {
		cascade = " CASCADE"
		for _, f := range []string{"claim", "add_consumer"} {
			must(t, p.db, fmt.Sprintf("DROP FUNCTION IF EXISTS %s%s", p.prefix, f))
		}
	} else {
		must(t, p.db, "DROP VIEW IF EXISTS "+p.prefix+"messages")
	}
	var tables []string
	for _, name := range []string{"schema", "consumers", "inbox", "attempts", "positions", "queue", "guard", "nothing", "effects", "escaped"} {
		tables = append(tables, p.prefix+name)
	}
	must(t, p.db, "DROP TABLE IF EXISTS "+strings.Join(tables, ", ")+cascade)
}

func (p *place) effect(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %seffects VALUES (%s)", p.prefix, p.mark), id)
	return err
}

func (p *place) effects(t testing.TB) map[string]int {
	t.Helper()
	rows, err := p.db.QueryContext(t.Context(), "SELECT id, count(*) FROM "+p.prefix+"effects GROUP BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		got[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// endings are the ways out of a transaction in the place that last tells.
func (s *server) endings(last func() string) []storetest.Ending[*sql.Tx] {
	ends := []storetest.Ending[*sql.Tx]{
		{Name: "Commit", End: func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }},
		{Name: "Rollback", End: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }},
	}
	for _, stmt := range s.ends {
		ends = append(ends, storetest.Ending[*sql.Tx]{Name: stmt, End: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, strings.ReplaceAll(stmt, "{p}", last()))
			return err
		}})
	}
	return ends
}

func (s *server) suite(settings map[string]string) storetest.Harness[*sql.Tx] {
	var last string // the suite opens one place after the other
	return storetest.Harness[*sql.Tx]{
		Open: func(t *testing.T) storetest.Instance[*sql.Tx] {
			p := s.place(t, settings)
			last = p.prefix
			return storetest.Instance[*sql.Tx]{
				Store:   p.store,
				Effect:  p.effect,
				Effects: func(t *testing.T) map[string]int { return p.effects(t) },
				Reopen:  func(t *testing.T) onceward.Store[*sql.Tx] { return p.another(t, s.database(t, settings)) },
			}
		},
		Ends:       s.endings(func() string { return last }),
		Concurrent: true,
		MaxWait:    time.Second,
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); storetest.Run(t, pgxServer.suite(nil)) })
	t.Run("pq", func(t *testing.T) { t.Parallel(); storetest.Run(t, pqServer.suite(nil)) })
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	t.Run("mysql", func(t *testing.T) { t.Parallel(); storetest.Run(t, mysqlServer.suite(nil)) })
}
