package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward"
)

const good = `store: sqlite:payments.db
setup: schema.sql
http: localhost:0
consumers:
  - name: ledger
    source: file:payments.ndjson
    guarantee: effectively-once
    id: $.payment_id
    key: $.account
    match: {$.type: payment, $.n: 1.50}
    handler:
      sql:
        - run: UPDATE accounts SET cents = cents - :cents WHERE id = :account
          rows: 1
      params:
        cents: $.cents
        account: $.account
    attempts: 5
    backoff: {first: 2s, most: 1m}
    timeout: 10s
    max_batch: 100
    mismatch: duplicate
    retention: forever
`

// inDir writes files into a new directory and returns the path of onceward.yaml in it.
func inDir(t *testing.T, yaml string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"onceward.yaml": yaml, "payments.ndjson": "", "schema.sql": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "onceward.yaml")
}

func TestLoadReadsEveryField(t *testing.T) {
	file := inDir(t, good)
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	k := c.Consumers[0]
	want := Settings{
		Attempts: 5, BackoffFirst: 2 * time.Second, BackoffMost: time.Minute, Timeout: 10 * time.Second,
		MaxBatch: 100, Mismatch: "duplicate", Retention: onceward.Forever,
	}
	switch {
	case c.Store.Path != filepath.Join(dir, "payments.db"):
		t.Errorf("the store is %s, which is not relative to the config file", c.Store.Path)
	case k.Source != Source{File, "payments.ndjson", filepath.Join(dir, "payments.ndjson")}:
		t.Errorf("source %+v", k.Source)
	case k.Settings != want:
		t.Errorf("settings %+v", k.Settings)
	case k.ID.Single == nil || k.ID.Single.Path.String() != "$.payment_id":
		t.Errorf("id %+v", k.ID)
	case len(k.Match) != 2 || k.Match[0].Literal || !k.Match[1].Literal || k.Match[1].Text != "1.50":
		t.Errorf("match %+v", k.Match)
	case len(k.Handler.Statements) != 1 || k.Handler.Statements[0].Rows != 1 || len(k.Handler.Params) != 2:
		t.Errorf("handler %+v", k.Handler)
	}
}

// edit replaces one line's text of the good config.
func edit(old, text string) string {
	if !strings.Contains(good, old) {
		panic("no " + old)
	}
	return strings.Replace(good, old, text, 1)
}

func TestLoadNamesLineAndField(t *testing.T) { //nolint:funlen // a table
	t.Setenv("UNSET_FOR_SURE", "")
	if err := os.Unsetenv("UNSET_FOR_SURE"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, yaml, want string }{
		{"unknown field", edit("    guarantee:", "    guarantie: x\n    guarantee:"), `onceward.yaml:7: consumers[0].guarantie: unknown field; did you mean "guarantee"?`},
		{"unknown top field", "stores: x\n", `onceward.yaml:1: stores: unknown field; did you mean "store"?`},
		{"unknown field, no hint", edit("http:", "colour:"), `onceward.yaml:3: colour: unknown field; known here are consumers, http, relays, setup, store`},
		{"bad guarantee", edit("effectively-once", "exactly-once"), `onceward.yaml:7: consumers[0].guarantee: "exactly-once" is none of at-most-once, at-least-once, effectively-once`},
		{"deduplicated", edit("effectively-once", "deduplicated"), `onceward.yaml:7: consumers[0].guarantee: deduplicated is not built in yet; for SQL use effectively-once, which promises more`},
		{"bad JSON path", edit("$.payment_id", "$."), `onceward.yaml:8: consumers[0].id: JSON path "$.": a name is missing after '.'`},
		{"constant id", edit("$.payment_id", "payment_id"), `onceward.yaml:8: consumers[0].id: "payment_id" would give every message the same id; use a JSON path such as $.payment_id, header:NAME or content`},
		{"constant id parts", edit("$.payment_id", "[a, b]"), `onceward.yaml:8: consumers[0].id: no part is a JSON path or header:NAME, so every message would have the same id`},
		{"empty id", edit("$.payment_id", `""`), `onceward.yaml:8: consumers[0].id: a value is missing`},
		{"no id", edit("    id: $.payment_id\n", ""), `onceward.yaml:5: consumers[0].id: missing: lines of file carry no message id of their own; use a JSON path such as $.id, or content`},
		{"no value", edit("$.payment_id", ""), `onceward.yaml:8: consumers[0].id: a value is missing`},
		{"undefined param", edit("        cents: $.cents\n", ""), `onceward.yaml:13: consumers[0].handler.sql[0].run: uses :cents, which handler.params does not define; add "cents: $.cents"`},
		{"unused param", edit("        cents: $.cents\n", "        cents: $.cents\n        more: $.more\n"), `onceward.yaml:17: consumers[0].handler.params.more: no statement uses :more`},
		{"several statements", edit("WHERE id = :account", "WHERE id = :account; DELETE FROM x"), `onceward.yaml:13: consumers[0].handler.sql[0].run: there are several statements here; give each a run of its own, in the order in which they are to run`},
		{"commit", edit("UPDATE accounts SET cents = cents - :cents WHERE id = :account\n          rows: 1", "/* x */ commit"), `onceward.yaml:13: consumers[0].handler.sql[0].run: COMMIT is not for handlers: the transaction is begun and committed for the handler, together with the record that the message is done`},
		{"pragma", edit("UPDATE accounts SET cents = cents - :cents WHERE id = :account\n          rows: 1", "PRAGMA synchronous=OFF"), `onceward.yaml:13: consumers[0].handler.sql[0].run: PRAGMA is not for handlers: put it into the setup file`},
		{"other placeholders", edit("= :account", "= ?"), `onceward.yaml:13: consumers[0].handler.sql[0].run: parameters are written :name, not ?`},
		{"rows of a query", edit("UPDATE accounts SET cents = cents - :cents WHERE id = :account", "SELECT :cents, :account"), `onceward.yaml:13: consumers[0].handler.sql[0]: rows has a meaning for INSERT, UPDATE and DELETE only, not for SELECT; remove it`},
		{"bad rows", edit("rows: 1", "rows: one"), `onceward.yaml:14: consumers[0].handler.sql[0].rows: "one" is not a whole number from 0 to 1073741824`},
		{"unknown option", edit("sqlite:payments.db", "mysql://u:secret@h/db?multiStatements=true"), `onceward.yaml:1: store: unknown option after the ?; known here are allow_lossy_commits, table_prefix, transaction_pooling, tls`},
		{"odd store", edit("sqlite:payments.db", "oracle:u/secret@h"), `onceward.yaml:1: store: oracle:… is no store; use sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE`},
		{"no database", edit("sqlite:payments.db", "mysql://u:secret@h"), `onceward.yaml:1: store: user, host or database is missing, as in mysql://USER:PASSWORD@HOST:3306/DATABASE`},
		{"bad port", edit("sqlite:payments.db", "postgres://u@h:70000/db"), `onceward.yaml:1: store: the port is not between 1 and 65535`},
		{"bad prefix", edit("sqlite:payments.db", "postgres://u@h/db?table_prefix=A-"), `onceward.yaml:1: store: table_prefix must be lower-case letters, digits and _, at most 31, and not begin with a digit`},
		{"quotes of another database", strings.Replace(edit("sqlite:payments.db", "postgres://u@h/db"), "id = :account", "id = $$:account", 1), `onceward.yaml:13: consumers[0].handler.sql[0].run: $$ is not closed`},
		{"store without a directory", edit("payments.db", "nowhere/payments.db"), `onceward.yaml:1: store: DIR/nowhere/payments.db: the directory does not exist`},
		{"store is a directory", edit("payments.db", "folder"), `onceward.yaml:1: store: DIR/folder is a directory`},
		{"setup missing", edit("schema.sql", "no.sql"), `onceward.yaml:2: setup: DIR/no.sql: no such file or directory`},
		{"source missing", edit("file:payments.ndjson", "file:no.ndjson"), `onceward.yaml:6: consumers[0].source: DIR/no.ndjson: no such file or directory`},
		{"source is a device", edit("file:payments.ndjson", "file:/dev/zero"), `onceward.yaml:6: consumers[0].source: /dev/zero is a pipe or a device, and a file is expected; the source stdin reads from a pipe`},
		{"source is a directory", edit("file:payments.ndjson", "file:folder"), `onceward.yaml:6: consumers[0].source: DIR/folder is a directory, and a file is expected`},
		{"other source", edit("file:payments.ndjson", "amqp://u:secret@h/q"), `onceward.yaml:6: consumers[0].source: amqp://u:xxxxx@h/q is not built in yet; use file:PATH, stdin or queue:NAME`},
		{"reserved queue", edit("file:payments.ndjson", "queue:retries"), `onceward.yaml:6: consumers[0].source: "queue:retries" is no queue to read; give it a name of your own, as in queue:payments`},
		{"unset variable", edit("$.account\n    match", "${UNSET_FOR_SURE}\n    match"), `onceward.yaml:9: consumers[0].key: the environment variable UNSET_FOR_SURE is not set`},
		{"bad duration", edit("timeout: 10s", "timeout: 10"), `onceward.yaml:20: consumers[0].timeout: "10" is not a duration like 90s, 720h or 30d`},
		{"backoff", edit("first: 2s", "first: 2h"), `onceward.yaml:19: consumers[0].backoff: first is longer than most`},
		{"retention of a file", edit("retention: forever", "retention: 30d"), `onceward.yaml:23: consumers[0].retention: a file is read from its start each time, so its messages must be remembered for ever; write forever, or leave it out`},
		{"relays", good + "relays: []\n", `onceward.yaml:24: relays: relays are not built in yet`},
		{"bad address", edit("localhost:0", "8080"), `onceward.yaml:3: http: "8080" is not an address like localhost:8080`},
		{"port out of range", edit("localhost:0", "localhost:99999"), `onceward.yaml:3: http: "localhost:99999": there is no port 99999; ports are 0 to 65535`},
		{"no port", edit("localhost:0", "'localhost:'"), `onceward.yaml:3: http: "localhost:" is not an address like localhost:8080`},
		{"store without a kind", edit("sqlite:payments.db", "foo.db"), `onceward.yaml:1: store: "foo.db" does not say what kind of store it is; did you mean sqlite:foo.db?`},
		{"header of a line", edit("$.payment_id", "header:x"), `onceward.yaml:8: consumers[0].id: lines of file have no headers; use a JSON path such as $.id, or content`},
		{"header of a line in a list", strings.Replace(edit("$.payment_id", "[$.a, header:x]"), "file:payments.ndjson", "stdin", 1), `onceward.yaml:8: consumers[0].id: lines of stdin have no headers; use a JSON path such as $.id, or content`},
		{"key in a header of a line", edit("key: $.account", "key: header:account"), `onceward.yaml:9: consumers[0].key: lines of file have no headers; use a JSON path such as $.account`},
		{"unclosed variable", edit("$.account\n    match", "${NOPE\n    match"), `onceward.yaml:9: consumers[0].key: ${ is not followed by a variable's name and }, as in ${NAME}; for ${ itself write $${`},
		{"variable without a name", edit("payments.db", "${}.db"), `onceward.yaml:1: store: ${ is not followed by a variable's name and }, as in ${NAME}; for ${ itself write $${`},
		{"syntax", "store: [a\n", `onceward.yaml:1: sequence end token ']' not found`},
		{"field twice", "store: sqlite:a\nstore: sqlite:b\n", `onceward.yaml:2: mapping key "store" already defined at [1:1]`},
		{"no store", "http: localhost:0\n", `onceward.yaml:1: store: missing; add for example "store: sqlite:onceward.db"`},
		{"empty", "\n", `onceward.yaml: the config file is empty`},
		{"no mapping", "- a\n", `onceward.yaml:1: fields are expected here, as in "name: value"`},
		{"consumer is text", "store: sqlite:a\nconsumers: [a]\n", `onceward.yaml:2: consumers[0]: fields are expected here, as in "name: value"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := inDir(t, c.yaml)
			_, err := Load(file)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(file)+"/onceward.yaml", "onceward.yaml")
			got = strings.ReplaceAll(got, filepath.Dir(file), "DIR")
			if first, _, _ := strings.Cut(got, "\n"); first != c.want {
				t.Errorf("\ngot  %s\nwant %s", got, c.want)
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T is no *Error", err)
			}
		})
	}
}

func TestLoadRefusesConsumersInEachOthersWay(t *testing.T) {
	_, second, _ := strings.Cut(good, "consumers:\n")
	_, err := Load(inDir(t, good+second))
	if err == nil || !strings.Contains(err.Error(), `consumers[1].name: "ledger" is the name of consumers[0] too`) {
		t.Errorf("the same name twice: %v", err)
	}
	if _, err := Load(inDir(t, good+strings.Replace(second, "ledger", "audit", 1))); err != nil {
		t.Errorf("two consumers of one file: %v", err)
	}
	queue := strings.NewReplacer("file:payments.ndjson", "queue:q").Replace(good)
	_, err = Load(inDir(t, queue+strings.NewReplacer("file:payments.ndjson", "queue:q", "ledger", "audit").Replace(second)))
	if err == nil || !strings.Contains(err.Error(), "consumers[1].source: queue:q is the source of consumers[0] too") {
		t.Errorf("the same queue twice: %v", err)
	}
}

func TestVariablesAreExpandedInScalars(t *testing.T) {
	t.Setenv("DB", "a b: [c")
	c, err := Load(inDir(t, edit("payments.db", "${DB}.db")))
	if err != nil || filepath.Base(c.Store.Path) != "a b: [c.db" {
		t.Errorf("%v %v", c.Store, err)
	}
	c, err = Load(inDir(t, edit("payments.db", "$${x$${.db")))
	if err != nil || filepath.Base(c.Store.Path) != "${x${.db" {
		t.Errorf("%v %v", c.Store, err)
	}
	c, err = Load(inDir(t, edit("payments.db", "$${DB}$DB$$.db")))
	if err != nil || filepath.Base(c.Store.Path) != "${DB}$DB$$.db" {
		t.Errorf("%v %v", c.Store, err)
	}
}

func TestServersAndTheirOptions(t *testing.T) {
	t.Setenv("PASSWORD", "s3cr3t")
	c, err := Load(inDir(t, edit("sqlite:payments.db", "postgresql://app:${PASSWORD}@db:5433/shop?sslmode=disable&table_prefix=once_&allow_lossy_commits=true")))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Store
	if s.Kind != Postgres || s.Text != "postgres://app@db:5433/shop" || s.TablePrefix != "once_" || !s.AllowLossyCommits || s.TransactionPooling {
		t.Errorf("%+v", s)
	}
	if got := s.URL.String(); got != "postgresql://app:s3cr3t@db:5433/shop?sslmode=disable" {
		t.Errorf("the URL is %s", got)
	}
	if got := c.Consumers[0].Handler.Statements[0].SQL.Text; !strings.Contains(got, "cents - $1 WHERE id = $2") {
		t.Errorf("the statement is %s", got)
	}
}

// A password that is not encoded gives a URL another meaning, and then any part of it can be a part of
// the password.
func TestFaultsOfAStoreDoNotTellThePassword(t *testing.T) {
	for _, password := range []string{"s3/cr3t", "s3@cr3t", "s3:cr3t", "s3#cr3t", "s3?cr3t", "s3%cr3t", "s3?cr3t=1", "s3/cr3t@x", "s3 cr3t", "12/cr3t", "12?s3&cr3t"} {
		for _, scheme := range []string{"postgres", "mysql", "oracle", "amqp"} {
			c, err := Load(inDir(t, edit("sqlite:payments.db", "'"+scheme+"://app:"+password+"@db.example/shop'")))
			if err == nil {
				if got, _ := c.Store.URL.User.Password(); got != password || strings.Contains(c.Store.Text, "cr3t") {
					t.Errorf("%s: the password is taken for %s, and the store is %s", password, got, c.Store.Text)
				}
				continue
			}
			if text := err.Error(); strings.Contains(text, "cr3t") || strings.Contains(text, "s3") {
				t.Errorf("%s: %s", password, text)
			}
		}
	}
}

func TestLoadStoreNeedsNothingElse(t *testing.T) {
	c, err := LoadStore(inDir(t, edit("file:payments.ndjson", "file:${UNSET_FOR_SURE}")))
	if err != nil || c.Store.Path == "" {
		t.Errorf("%v %v", c, err)
	}
}

func TestAliasesAreFollowed(t *testing.T) {
	yaml := edit("cents: $.cents\n        account: $.account", "cents: &p $.cents\n        account: *p")
	c, err := Load(inDir(t, yaml))
	if err != nil || c.Consumers[0].Handler.Params[1].Path.String() != "$.cents" {
		t.Errorf("%v", err)
	}
}
