package cli

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

// asProgram makes the test binary be the program, so that tests run it as a process of its own, built
// like the tests are, with the race detector or without.
const asProgram = "ONCEWARD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// box is a directory with a config file in it.
type box struct {
	*testing.T
	dir string
}

const ledgerConfig = `store: sqlite:payments.db
setup: schema.sql
consumers:
  - name: ledger
    source: file:payments.ndjson
    guarantee: effectively-once
    id: $.id
    handler:
      sql:
        - run: UPDATE accounts SET cents = cents - :cents WHERE id = :account
          rows: 1
      params:
        cents: $.cents
        account: $.account
`

const ledgerSchema = `CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL);
INSERT INTO accounts VALUES ('a', 0), ('b', 0) ON CONFLICT DO NOTHING;
`

func newBox(t *testing.T, payments string) *box {
	t.Helper()
	b := &box{t, t.TempDir()}
	b.write("onceward.yaml", ledgerConfig)
	b.write("schema.sql", ledgerSchema)
	b.write("payments.ndjson", payments)
	return b
}

func (b *box) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// edit replaces text in the config.
func (b *box) edit(pairs ...string) {
	b.Helper()
	b.write("onceward.yaml", strings.NewReplacer(pairs...).Replace(b.read("onceward.yaml")))
}

func (b *box) read(name string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

func (b *box) command(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), exe, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// run runs the program and wants an exit code.
func (b *box) run(code int, args ...string) (stdout, stderr string) {
	b.Helper()
	return b.runWith(nil, code, args...)
}

func (b *box) runWith(in io.Reader, code int, args ...string) (stdout, stderr string) {
	b.Helper()
	var out, errs bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.Fatalf("onceward %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// summaries runs the config and returns the summaries, which must add up.
func (b *box) summaries(code int, args ...string) []summary {
	b.Helper()
	out, _ := b.run(code, append([]string{"run", "onceward.yaml", "--summary", "json"}, args...)...)
	return parseSummaries(b.T, out)
}

func parseSummaries(t *testing.T, out string) (all []summary) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(out))
	for dec.More() {
		var s summary
		if err := dec.Decode(&s); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if s.Received+s.WaitingAtStart != s.Processed+s.Duplicates+s.Skipped+s.Dead+s.Waiting+s.GivenBack {
			t.Errorf("the summary does not add up: %+v", s)
		}
		all = append(all, s)
	}
	return all
}

// ledger returns the summary of a run with one consumer.
func (b *box) ledger(code int, args ...string) summary {
	b.Helper()
	all := b.summaries(code, args...)
	if len(all) != 1 || all[0].Consumer != "ledger" {
		b.Fatalf("summaries %+v", all)
	}
	return all[0]
}

// query asks the database for one value.
func (b *box) query(text string) string {
	b.Helper()
	v, err := b.value(text)
	if err != nil {
		b.Fatalf("%s: %v", text, err)
	}
	return v
}

// ask is query while a program may not have created the tables yet.
func (b *box) ask(text string) string {
	v, err := b.value(text)
	if err != nil {
		return err.Error()
	}
	return v
}

func (b *box) value(text string) (string, error) {
	db, err := sql.Open("sqlite", database.SQLiteDSN(filepath.Join(b.dir, "payments.db")))
	if err != nil {
		return "", err
	}
	defer db.Close() //nolint:errcheck // nothing was written
	var v any
	err = db.QueryRowContext(b.Context(), text).Scan(&v)
	return fmt.Sprint(v), err
}

func (b *box) exec(text string) {
	b.Helper()
	db, err := sql.Open("sqlite", database.SQLiteDSN(filepath.Join(b.dir, "payments.db")))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the statement's error tells
	if _, err := db.ExecContext(b.Context(), text); err != nil {
		b.Fatal(err)
	}
}

// process is the program while it runs.
type process struct {
	*exec.Cmd
	b      *box
	stderr *bufio.Scanner
	stdout *bytes.Buffer
}

func (b *box) start(args ...string) *process {
	b.Helper()
	p := &process{Cmd: b.command(args...), b: b, stdout: &bytes.Buffer{}}
	p.Stdout = p.stdout
	pipe, err := p.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.stderr = bufio.NewScanner(pipe)
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	return p
}

// line waits for a log line that contains text.
func (p *process) line(text string) {
	p.b.Helper()
	for p.stderr.Scan() {
		if strings.Contains(p.stderr.Text(), text) {
			return
		}
	}
	p.b.Fatalf("the log ended without %q", text)
}

// end waits for the exit code.
func (p *process) end(code int) {
	p.b.Helper()
	for p.stderr.Scan() {
	}
	p.Wait() //nolint:errcheck // the code tells
	if got := p.ProcessState.ExitCode(); got != code {
		p.b.Fatalf("exit code %d, want %d: %s", got, code, p.stdout)
	}
}

// until polls for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(4 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		case <-tick.C:
		}
	}
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func pay(id, account string, cents int) string {
	return fmt.Sprintf("{\"id\":%q,\"account\":%q,\"cents\":%d}\n", id, account, cents)
}
