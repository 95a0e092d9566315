package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// server is a database server, with the example and a table of every type in its own SQL.
type server struct {
	name, variable string
	create, drop   string // a database
	connect        func(t *testing.T, name string) (db *sql.DB, store string)
	bytes          textBytes
	schema         *strings.Replacer // of the example
	statements     *strings.Replacer
}

var servers = []*server{
	{
		name: "Postgres", variable: "ONCEWARD_POSTGRES", connect: postgresDatabase, bytes: "%s",
		create: "CREATE DATABASE %s", drop: "DROP DATABASE %s WITH (FORCE)",
		schema: strings.NewReplacer("INTEGER", "BIGINT", "INSERT OR IGNORE", "INSERT", "100000000);", "100000000) ON CONFLICT DO NOTHING;",
			"payment_id TEXT", "payment_id BYTEA"), // a text of Postgres can't hold U+0000
		statements: strings.NewReplacer(":amount", ":amount::numeric", "AS INTEGER", "AS bigint"),
	},
	{
		name: "MySQL", variable: "ONCEWARD_MYSQL", connect: mysqlDatabase, bytes: "CAST(%s AS BINARY)",
		create: "CREATE DATABASE %s CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", drop: "DROP DATABASE %s",
		schema:     strings.NewReplacer("INTEGER", "BIGINT", "INSERT OR IGNORE", "INSERT IGNORE", "id    TEXT", "id VARCHAR(250) COLLATE utf8mb4_nopad_bin", " TEXT", " TEXT COLLATE utf8mb4_nopad_bin"),
		statements: strings.NewReplacer("AS INTEGER", "AS SIGNED"),
	},
}

func postgresDatabase(t *testing.T, name string) (*sql.DB, string) {
	t.Helper()
	u, err := url.Parse(os.Getenv("ONCEWARD_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		u.Path = "/" + name
	}
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	return db, u.String()
}

func mysqlDatabase(t *testing.T, name string) (*sql.DB, string) {
	t.Helper()
	c, err := mysql.ParseDSN(os.Getenv("ONCEWARD_MYSQL"))
	if err != nil {
		t.Fatal(err)
	}
	c.DBName = name
	db, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", Host: c.Addr, Path: "/" + name, User: url.User(c.User)}
	if c.Passwd != "" {
		u.User = url.UserPassword(c.User, c.Passwd)
	}
	return db, u.String()
}

// bench is a database of its own on a server, and a directory with a config file for it.
type bench struct {
	*testing.T
	*server
	bin, dir, name, store string
	db                    *sql.DB
}

// The program keeps its promises with every server that is there.
func TestServers(t *testing.T) {
	t.Parallel()
	bin, want := buildProgram(t), expectSome(t)
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if os.Getenv(s.variable) == "" {
				if os.Getenv("CI") == "true" {
					t.Fatalf("%s is not set: run the tests by scripts/test", s.variable)
				}
				t.Skipf("NOT TESTED, for want of a server: %s is not set; scripts/services up starts one and prints it", s.variable)
			}
			test := func(name string, f func(b *bench)) {
				t.Run(name, func(t *testing.T) { f(newBench(t, s, bin)) })
			}
			test("the payments example", func(b *bench) { b.payments(want) })
			test("the payments example, killed", func(b *bench) { b.killed(want) })
			test("types of parameters", (*bench).parameterTypes)
			test("mistakes", (*bench).mistakes)
			test("check", (*bench).check)
		})
	}
}

// newBench makes a database.
func newBench(t *testing.T, s *server, bin string) *bench {
	t.Helper()
	name := fmt.Sprintf("onceward_program_%d", rand.Uint32())
	admin, _ := s.connect(t, "")
	t.Cleanup(func() { closeDatabase(t, admin) })
	if _, err := admin.ExecContext(t.Context(), fmt.Sprintf(s.create, name)); err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, server: s, bin: bin, dir: t.TempDir(), name: name}
	b.db, b.store = s.connect(t, name)
	t.Cleanup(func() {
		closeDatabase(t, b.db)
		if _, err := admin.ExecContext(context.WithoutCancel(t.Context()), fmt.Sprintf(s.drop, name)); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// onceward runs the program and wants an exit code.
func (b *bench) onceward(code int, args ...string) (stdout, stderr string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, b.bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		b.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.Fatalf("onceward %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func (b *bench) wants(text string, wants ...string) {
	b.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			b.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func (b *bench) query(text string) (v string) {
	b.Helper()
	if err := b.db.QueryRowContext(b.Context(), text).Scan(&v); err != nil {
		b.Fatalf("%s: %v", text, err)
	}
	return v
}

// example writes the payments example in the server's SQL.
func (b *bench) example() {
	b.Helper()
	for name, edit := range map[string]*strings.Replacer{"onceward.yaml": b.statements, "schema.sql": b.schema, "payments.ndjson": nil} {
		content, err := os.ReadFile(filepath.Join(exampleDir, name))
		if err != nil {
			b.Fatal(err)
		}
		text := string(content)
		if edit == nil {
			text = someLines(text)
		} else {
			text = edit.Replace(strings.Replace(text, "sqlite:payments.db", b.store, 1))
		}
		b.write(name, text)
	}
}

// someLines are those of the example that are the hardest for a database: ids that are long, or odd.
func someLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(slices.Concat(lines[8_200:8_300], lines[10_300:12_300]), "")
}

// expectSome says what must become of someLines.
func expectSome(t *testing.T) *expectation {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(exampleDir, "payments.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	want := expectLines(t, someLines(string(content)))
	if want.duplicates < 50 || want.deadLetters() < 5 || want.skipped < 5 || want.ledger["pay_\x00"].cents == 0 {
		t.Fatalf("these lines show too little: %+v", want.firstRun())
	}
	return want
}

func (b *bench) payments(want *expectation) {
	b.example()
	_, errs := b.onceward(1, "run", "onceward.yaml")
	b.wants(errs, "has no tables of Onceward yet; run: onceward migrate up onceward.yaml")
	_, errs = b.onceward(1, "migrate", "status", "onceward.yaml")
	b.wants(errs, "migrate up")
	b.onceward(0, "migrate", "up", "onceward.yaml")
	b.onceward(0, "migrate", "status", "onceward.yaml")
	if got := runProgram(b.T, b.bin, b.dir); got != want.firstRun() {
		b.Errorf("first run:\n got %+v\nwant %+v", got, want.firstRun())
	}
	want.checkDatabase(b.T, b.db, b.bytes)
	if got := runProgram(b.T, b.bin, b.dir); got != want.laterRun() {
		b.Errorf("second run:\n got %+v\nwant %+v", got, want.laterRun())
	}
	want.checkDatabase(b.T, b.db, b.bytes)
}

func (b *bench) killed(want *expectation) {
	b.example()
	b.onceward(0, "migrate", "up", "onceward.yaml")
	seed := envInt(b.T, "ONCEWARD_KILL_SEED", int(time.Now().UnixNano()&0xFFFFFF))
	b.Logf("to repeat the same points: ONCEWARD_KILL_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	applied := 0
	for life := range 10 {
		liveFor(b.T, b.bin, b.dir, 100*time.Millisecond+time.Duration(random.Int64N(int64(500*time.Millisecond))))
		if life == 0 {
			continue // perhaps before the setup
		}
		applied = want.checkMoney(b.T, b.db, b.bytes)
	}
	b.Logf("%d of %d payments were made when the kills ended", applied, want.processed)
	if applied == 0 {
		b.Error("no life was long enough to apply a payment, so the kills show nothing")
	}
	last := runProgram(b.T, b.bin, b.dir)
	if last.Received != want.received || last.Processed > want.processed {
		b.Errorf("the run after the kills: %+v does not fit %+v", last, want.firstRun())
	}
	want.checkDatabase(b.T, b.db, b.bytes)
	if again := runProgram(b.T, b.bin, b.dir); again != want.laterRun() {
		b.Errorf("one more run:\n got %+v\nwant %+v", again, want.laterRun())
	}
}

const typesConfig = `store: %s
setup: schema.sql
consumers:
  - name: types
    source: file:messages.ndjson
    guarantee: effectively-once
    id: $.id
    attempts: 1
    handler:
      sql:
        - run: UPDATE sums SET cents = cents - :cents, amount = amount + :amount WHERE id = :of
          rows: 1
        - run: INSERT INTO vals (id, txt, big, num, flag, raw) VALUES (:id, :txt, :big, :num, :flag, :raw)
      params: {id: $.id, of: $.of, cents: $.cents, amount: $.amount, txt: $.txt, big: $.big, num: $.num, flag: $.flag, raw: $.raw}
`

func (b *bench) types() {
	b.write("onceward.yaml", fmt.Sprintf(typesConfig, b.store))
	text, raw := "TEXT", "BYTEA"
	if b.server.name == "MySQL" {
		text, raw = "VARCHAR(250) COLLATE utf8mb4_nopad_bin", "VARBINARY(250)"
	}
	b.write("schema.sql", fmt.Sprintf(`CREATE TABLE IF NOT EXISTS sums (id %[1]s, cents BIGINT NOT NULL, amount NUMERIC(40, 4) NOT NULL);
CREATE TABLE IF NOT EXISTS vals (id %[1]s, txt %[1]s, big BIGINT, num NUMERIC(40, 20), flag BOOLEAN, raw %[2]s);
DELETE FROM sums; -- ; is no end here
INSERT INTO sums VALUES ('a', 0, 90071992547409930000.01), ('b', 0, 0);`, text, raw))
	b.onceward(0, "migrate", "up", "onceward.yaml")
}

// Numbers, texts, booleans, null and bytes reach columns of their type exactly.
func (b *bench) parameterTypes() {
	b.types()
	lines := []string{
		`{"id":"1","of":"a","cents":5,"amount":19.90,"txt":"it's $1 ? :x \\ é🦊","big":9223372036854775807,"num":0.1,"flag":true,"raw":"\\x00\u0000\\"}`,
		`{"id":"2","of":"a","cents":-7,"amount":1e-2,"txt":null,"big":-9223372036854775808,"num":12345678901234567890.12345678901234567890,"flag":false,"raw":null}`,
		`{"id":"3","of":"b","cents":9007199254740993,"amount":12,"txt":"","big":null,"num":1.5E3,"flag":null,"raw":"x"}`,
		`{"id":"4","of":"b","cents":1,"amount":0.1,"txt":"4","big":0,"num":-3,"flag":true,"raw":"x"}`,
		`{"id":"5","of":"b","cents":1,"amount":0.2,"txt":"5","big":0,"num":0,"flag":true,"raw":"x"}`,
		`{"id":"6","of":"nobody","cents":1,"amount":1,"txt":"","big":0,"num":0,"flag":true,"raw":"x"}`,
		`{"id":"7","of":"b","cents":1,"amount":1,"txt":"","big":9223372036854775808,"num":0,"flag":true,"raw":"x"}`,
	}
	b.write("messages.ndjson", strings.Join(lines, "\n")+"\n")
	if s := runProgram(b.T, b.bin, b.dir); s.Processed != 5 || s.Dead != 2 {
		dead, _ := b.onceward(0, "dead", "list", "onceward.yaml")
		b.Errorf("%+v\n%s", s, dead)
	}
	dead, _ := b.onceward(0, "dead", "list", "onceward.yaml")
	b.wants(dead, "expected 1 row, got 0", "ut of range")
	for query, want := range map[string]string{
		"SELECT CONCAT(cents, ' ', amount) FROM sums WHERE id = 'a'":                            "2 90071992547409930019.9200",
		"SELECT CONCAT(cents, ' ', amount) FROM sums WHERE id = 'b'":                            "-9007199254740995 12.3000",
		"SELECT txt FROM vals WHERE id = '1'":                                                   `it's $1 ? :x \ é🦊`,
		"SELECT CONCAT(big, ' ', num) FROM vals WHERE id = '1'":                                 "9223372036854775807 0.10000000000000000000",
		"SELECT CONCAT(big, ' ', num) FROM vals WHERE id = '2'":                                 "-9223372036854775808 12345678901234567890.12345678901234567890",
		"SELECT num FROM vals WHERE id = '3'":                                                   "1500.00000000000000000000",
		"SELECT count(*) FROM vals WHERE id IN ('1', '4', '5') AND flag":                        "3",
		"SELECT count(*) FROM vals WHERE id = '2' AND NOT flag AND txt IS NULL AND raw IS NULL": "1",
		"SELECT raw FROM vals WHERE id = '1'":                                                   "\\x00\x00\\",
	} {
		if got := b.query(query); got != want {
			b.Errorf("%s:\n got %q\nwant %q", query, got, want)
		}
	}
}

func (b *bench) mistakes() {
	b.types()
	b.write("messages.ndjson", "")
	good := fmt.Sprintf(typesConfig, b.store)
	for _, c := range []struct {
		old, text string
		code      int
		want      string
	}{
		{"UPDATE sums", "UPDATE sum", 2, "onceward.yaml:11: consumers[0].handler.sql[0].run: the database refuses it"},
		{":raw)", ":raw))", 2, "onceward.yaml:13: consumers[0].handler.sql[1].run: the database refuses it"},
		{"UPDATE sums", "ROLLBACK; UPDATE sums", 2, "there are several statements here"},
		{"@127.0.0.1:", "-not-there:s3cr3t@127.0.0.1:", 1, "-not-there"},
		{"@127.0.0.1:", ":s3cr3t@127.0.0.1:1", 2, "port"},
	} {
		text := strings.Replace(good, c.old, c.text, 1)
		if text == good {
			b.Fatalf("no %s in\n%s", c.old, good)
		}
		b.write("onceward.yaml", text)
		for _, command := range []string{"run", "check"} {
			out, errs := b.onceward(c.code, command, "onceward.yaml")
			b.wants(errs, c.want)
			if strings.Contains(out+errs, "s3cr3t") {
				b.Errorf("the password is told: %s%s", out, errs)
			}
		}
	}
	b.write("onceward.yaml", good)
	b.write("schema.sql", "CREATE TABLE IF NOT EXISTS x (y INT);\nCREATE TABEL z;")
	_, errs := b.onceward(2, "run", "onceward.yaml")
	b.wants(errs, "onceward.yaml:2: setup: ", "TABEL")
	b.write("schema.sql", "BEGIN; DELETE FROM sums;")
	_, errs = b.onceward(2, "run", "onceward.yaml")
	b.wants(errs, "begins a transaction and does not commit it")
	if n := b.query("SELECT count(*) FROM sums"); n != "2" {
		b.Errorf("%s rows are left by a transaction that was not committed", n)
	}
}

func (b *bench) check() {
	b.types()
	b.write("messages.ndjson", "")
	ways := map[string]string{
		"Postgres": "ALTER DATABASE " + b.name + " SET synchronous_commit = off",
		"MySQL":    "CREATE TABLE logs (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY) ENGINE = MyISAM",
	}
	_, errs := b.onceward(2, "check", "onceward.yaml")
	b.wants(errs, "check does not run the setup file")
	b.onceward(0, "run", "onceward.yaml")
	out, _ := b.onceward(0, "check", "onceward.yaml")
	b.wants(out, " 1", ": good\n", "types: effectively-once from file:messages.ndjson: good")
	if _, err := b.db.ExecContext(b.Context(), ways[b.server.name]); err != nil {
		b.Fatal(err)
	}
	code, want := 0, []string{"the table logs is of engine MyISAM", "the key logs.k compares by utf8mb4_general_ci"}
	if b.server.name == "Postgres" {
		code, want = 1, []string{"synchronous_commit is off", `"good":false`}
	}
	out, _ = b.onceward(code, "check", "onceward.yaml", "--json")
	b.wants(out, append(want, `"store":"`)...)
	for line := range strings.Lines(out) {
		if !json.Valid([]byte(line)) {
			b.Errorf("not JSON: %s", line)
		}
	}
}
