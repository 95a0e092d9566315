package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

func TestRunAppliesEachPaymentOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 10)+pay("2", "b", 5)+pay("1", "a", 10)+strings.TrimSuffix(pay("3", "a", 1), "\n"))
	if s := b.ledger(0); s.Received != 4 || s.Processed != 3 || s.Duplicates != 1 {
		t.Errorf("%+v", s)
	}
	if s := b.ledger(0); s.Received != 4 || s.Processed != 0 || s.Duplicates != 4 {
		t.Errorf("the second run: %+v", s)
	}
	if got := b.query("SELECT group_concat(cents) FROM (SELECT cents FROM accounts ORDER BY id)"); got != "-11,-5" {
		t.Errorf("balances %s", got)
	}
	out, _ := b.run(0, "run", "onceward.yaml")
	contains(t, out, "ledger:", "received                   4  from file:payments.ndjson", "applied                    0", "payments.db")
	if strings.Contains(out, "dead") {
		t.Errorf("there are no dead letters to speak of:\n%s", out)
	}
}

func TestRunKeepsWhatCantBeApplied(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 10)+"not json\n\n"+`{"id":"2"}`+"\n"+pay("3", "nobody", 1)+`{"id":"","account":"a","cents":1}`+"\n"+
		pay("1", "a", 11)+pay(strings.Repeat("x", 64<<10), "a", 1))
	s := b.ledger(3, "--strict")
	if s.Received != 8 || s.Processed != 2 || s.Dead != 6 {
		t.Errorf("%+v", s)
	}
	out, _ := b.run(0, "dead", "list", "onceward.yaml")
	contains(t, out, "the body is not JSON", "$.cents: nothing there", "expected 1 row, got 0", "another body")
	if s := b.ledger(3, "--strict"); s.Dead != 0 || s.Duplicates != 8 {
		t.Errorf("the second run: %+v", s)
	}
	out, _ = b.run(0, "run", "onceward.yaml")
	contains(t, out, "see: onceward dead list onceward.yaml")
}

func TestNumbersReachTheDatabaseAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	b := newBox(t, `{"id":1,"v":9007199254740993}`+"\n"+`{"id":2,"v":1234567890123456789012345678901234567890}`+"\n"+`{"id":3,"v":0.10}`+"\n"+`{"id":4,"v":null}`+"\n")
	b.write("schema.sql", "CREATE TABLE IF NOT EXISTS vs (v BLOB)")
	b.edit("UPDATE accounts SET cents = cents - :cents WHERE id = :account", "INSERT INTO vs VALUES (:v)", "cents: $.cents", "v: $.v", "        account: $.account\n", "")
	if s := b.ledger(0); s.Processed != 4 {
		t.Errorf("%+v", s)
	}
	want := "integer 9007199254740993;text 1234567890123456789012345678901234567890;text 0.10;null -"
	if got := b.query("SELECT group_concat(typeof(v) || ' ' || coalesce(v, '-'), ';') FROM vs"); got != want {
		t.Errorf("got %s", got)
	}
}

func TestMatchSkipsOthersButNotNonsense(t *testing.T) {
	t.Parallel()
	b := newBox(t, `{"type":"p","id":"1","account":"a","cents":1}`+"\n"+`{"type":"q","id":"2"}`+"\n{}\nnonsense\n")
	b.edit("    id: $.id", "    match: {$.type: p}\n    id: $.id")
	if s := b.ledger(0); s.Processed != 1 || s.Skipped != 2 || s.Dead != 1 {
		t.Errorf("%+v", s)
	}
}

func TestOtherGuaranteesGoOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at-least-once", "at-most-once"} {
		b := newBox(t, pay("1", "a", 1)+pay("1", "a", 1))
		b.edit("effectively-once\n    id: $.id", guarantee)
		if s := b.ledger(0); s.Received != 2 || s.Processed != 2 {
			t.Errorf("%s: %+v", guarantee, s)
		}
		if s := b.ledger(0); s.Received != 0 {
			t.Errorf("%s, second run: %+v", guarantee, s)
		}
		b.write("payments.ndjson", b.read("payments.ndjson")+pay("2", "b", 7))
		if s := b.ledger(0); s.Received != 1 || s.Processed != 1 {
			t.Errorf("%s, after one more: %+v", guarantee, s)
		}
		if got := b.query("SELECT sum(cents) FROM accounts"); got != "-9" {
			t.Errorf("%s: balance %s", guarantee, got)
		}
	}
}

func TestStdinIsASource(t *testing.T) {
	t.Parallel()
	b := newBox(t, "")
	b.edit("file:payments.ndjson", "stdin")
	out, _ := b.runWith(strings.NewReader(pay("1", "a", 1)+pay("1", "a", 1)), 0, "run", "onceward.yaml", "--json")
	if s := parseSummaries(t, out); len(s) != 1 || s[0].Processed != 1 || s[0].Duplicates != 1 {
		t.Errorf("%+v", s)
	}
}

func TestConfigErrorsEndWithTwo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit []string
		want string
	}{
		"a typo in the SQL":    {[]string{"SET cents", "SET sense"}, "onceward.yaml:10: consumers[0].handler.sql[0].run: the database refuses it"},
		"a text in \"quotes\"": {[]string{"id = :account", `id = "a" || :account`}, "onceward.yaml:10: consumers[0].handler.sql[0].run: the database refuses it"},
		"an unknown field":     {[]string{"setup:", "setups:"}, `onceward.yaml:2: setups: unknown field; did you mean "setup"?`},
		"a directory":          {[]string{"file:payments.ndjson", "file:."}, "onceward.yaml:5: consumers[0].source: . is a directory"},
		"a password":           {[]string{"sqlite:payments.db", "mysql://u:secret@h"}, "onceward.yaml:1: store: user, host or database is missing"},
	} {
		b := newBox(t, pay("1", "a", 1))
		b.edit(c.edit...)
		out, errs := b.run(2, "run", "onceward.yaml")
		contains(t, errs, c.want)
		if out != "" || strings.Contains(errs, "secret") {
			t.Errorf("%s: %s%s", name, out, errs)
		}
	}
	b := newBox(t, "")
	b.run(2, "run", "nowhere.yaml")
	b.run(2, "run", ".")
	b.run(2, "run", "onceward.yaml", "--colour")
	b.run(2, "walk", "onceward.yaml")
	b.write("schema.sql", "CREATE TABEL x")
	_, errs := b.run(2, "run", "onceward.yaml")
	contains(t, errs, "onceward.yaml:2: setup:", "TABEL")
	b.write("schema.sql", ledgerSchema+"BEGIN; DELETE FROM accounts;")
	_, errs = b.run(2, "run", "onceward.yaml")
	contains(t, errs, "begins a transaction and does not commit it")
}

// queueBox has a consumer of a queue, which never ends by itself.
func queueBox(t *testing.T) *box {
	b := newBox(t, pay("1", "a", 1)+pay("2", "b", 2))
	b.edit("file:payments.ndjson", "queue:in", "    id: $.id\n", "")
	return b
}

func TestSignalsPrintASummaryAndEndTheRun(t *testing.T) {
	t.Parallel()
	b := queueBox(t)
	b.run(0, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "$.id")
	p := b.start("run", "onceward.yaml", "--json")
	until(t, "both are applied", func() bool { return b.ask("SELECT sum(cents) FROM accounts") == "-3" })
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	p.line("finishing what has started")
	p.end(0)
	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	last := parseSummaries(t, lines[len(lines)-1])
	if len(lines) != 2 || last[0].Processed != 2 {
		t.Errorf("%q", p.stdout)
	}
	if got := b.query("SELECT count(*) FROM onceward_queue"); got != "0" {
		t.Errorf("%s rows are left in the queue", got)
	}
}

func TestHTTPTellsAboutTheRun(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	b := queueBox(t)
	b.edit("setup:", "http: "+address+"\nsetup:")
	_, errs := b.run(1, "run", "onceward.yaml")
	contains(t, errs, "address already in use")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b.run(0, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "$.id")
	p := b.start("run", "onceward.yaml")
	p.line("msg=http")
	until(t, "both are applied", func() bool { return b.ask("SELECT sum(cents) FROM accounts") == "-3" })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // nothing was written
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v", path, resp.Status, err)
		}
		return string(text)
	}
	contains(t, get("/live"), "live")
	contains(t, get("/ready"), "ledger: running")
	until(t, "the counts say so", func() bool { return strings.Contains(get("/stats"), `"consumer":"ledger","received":2,"processed":2`) })
	contains(t, get("/metrics"), "# TYPE onceward_messages_total counter\n", `onceward_messages_total{consumer="ledger",outcome="processed"} 2`+"\n",
		`onceward_running{consumer="ledger"} 1`+"\n")
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.end(0)
}

func TestFailuresAreTriedAgainByTheNextRun(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.write("schema.sql", ledgerSchema+`CREATE TRIGGER IF NOT EXISTS no BEFORE UPDATE ON accounts BEGIN SELECT raise(ABORT, 'not now'); END;`)
	b.edit("    handler:", "    backoff: {first: 1h, most: 1h}\n    handler:")
	out, _ := b.run(0, "run", "onceward.yaml")
	contains(t, out, "waiting                    1  for a retry, the first in", "run again then")
	if s := b.ledger(0); s.WaitingAtStart != 1 || s.Duplicates != 1 || s.Waiting != 1 {
		t.Errorf("while it waits: %+v", s)
	}
	b.write("schema.sql", "DROP TRIGGER IF EXISTS no")
	b.exec("UPDATE onceward_queue SET due = 0")
	if s := b.ledger(0); s.Processed != 1 || s.Waiting != 0 {
		t.Errorf("once it is due: %+v", s)
	}
}

func TestManyLinesNeedLittleMemory(t *testing.T) {
	lines := 100_000
	if raceDetector {
		lines = 10_000
	}
	if v := testEnvInt(t, "ONCEWARD_TEST_LINES"); v > 0 {
		lines = v
	}
	var text strings.Builder
	for i := range lines {
		text.WriteString(pay(fmt.Sprintf("payment-%d", i), "a", 1))
	}
	b := newBox(t, text.String())
	var peak int64
	p := b.start("run", "onceward.yaml", "--json")
	go func() {
		for p.stderr.Scan() {
		}
	}()
	until(t, "it has ended", func() bool {
		n, ok := peakMemory(p.Process.Pid)
		peak = max(peak, n)
		return !ok
	})
	p.Wait() //nolint:errcheck // the summary tells
	s := parseSummaries(t, p.stdout.String())
	if len(s) != 1 || s[0].Processed != int64(lines) {
		t.Errorf("%+v", s)
	}
	const most = 150 << 10
	t.Logf("%d lines, peak %d kB", lines, peak)
	if !raceDetector && peak > most {
		t.Errorf("peak memory %d kB, more than %d kB", peak, most)
	}
}

func TestSecondSignalEndsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	b := queueBox(t)
	// A statement that takes longer than anybody waits.
	b.edit("UPDATE accounts SET cents = cents - :cents WHERE id = :account\n          rows: 1",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000000 + :cents) INSERT INTO accounts SELECT :account, count(*) FROM n")
	b.run(0, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "$.id")
	p := b.start("run", "onceward.yaml", "--log-level", "debug")
	until(t, "a message is in hand", func() bool { return b.ask("SELECT count(*) FROM onceward_queue WHERE state = 2") == "2" })
	for _, wait := range []string{"finishing what has started", "stopping at once"} {
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.line(wait)
	}
	p.end(1)
}
