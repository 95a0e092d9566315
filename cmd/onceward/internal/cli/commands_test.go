package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func testEnvInt(t *testing.T, name string) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// peakMemory returns the peak resident memory of a process in kB; false once it has ended.
func peakMemory(pid int) (kB int64, running bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(n), " kB"), 10, 64)
			return kB, err == nil
		}
	}
	return 0, false // a zombie has none
}

func TestPublishRefusesMessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	b := queueBox(t)
	b.write("payments.ndjson", pay("1", "a", 1)+"\n"+`{"account":"a"}`+"\n"+pay("2", "a", 1))
	out, errs := b.run(1, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "$.id")
	contains(t, out, "1 message accepted for queue in; where one with the same id waits there already, that one stays as it is")
	contains(t, errs, "line 3: no id: $.id: nothing there")
	b.run(2, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "id")
	b.run(2, "publish", "onceward.yaml", "in", "payments.ndjson")
	b.run(2, "publish", "onceward.yaml", "retries", "payments.ndjson", "--id", "$.id")
	_, errs = b.run(2, "publish", "onceward.yaml", "", "payments.ndjson", "--id", "$.id")
	contains(t, errs, "the queue's name is empty")
	_, errs = b.run(2, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "header:x")
	contains(t, errs, "lines have no headers")
	_, errs = b.runWith(strings.NewReader("hello\n"), 1, "publish", "onceward.yaml", "in", "--id", "content")
	contains(t, errs, "line 1: not JSON; use --lines for other text")
	out, _ = b.runWith(strings.NewReader("hello\nthere\nhello\n"), 0, "publish", "onceward.yaml", "in", "--id", "content", "--lines", "--json")
	contains(t, out, `{"accepted":3,"queue":"in"}`)
	out, _ = b.run(0, "stats", "onceward.yaml", "--json")
	contains(t, out, `"queue":"in"`, `"waiting":3`)
}

func TestPublishedTwiceAppliedOnce(t *testing.T) {
	t.Parallel()
	b := queueBox(t)
	b.edit("queue:in", "file:payments.ndjson", "effectively-once", "effectively-once\n    id: [payment, $.id]")
	b.ledger(0)
	b.edit("file:payments.ndjson", "queue:in", "    id: [payment, $.id]\n", "")
	for range 2 {
		b.run(0, "publish", "onceward.yaml", "in", "payments.ndjson", "--id", "payment", "--id", "$.id")
	}
	p := b.start("run", "onceward.yaml", "--json")
	until(t, "the queue is empty", func() bool { return b.ask("SELECT count(*) FROM onceward_queue") == "0" })
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.end(0)
	if s := parseSummaries(t, p.stdout.String()); s[0].Duplicates != 2 || s[0].Processed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDeadLettersAreShownReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "late", 1)+pay("2", "never", 1)+"\x1b[31mred\xff"+strings.Repeat("x", 3000)+"\n"+pay("3", "a", 1)+pay("3", "a", 2))
	b.ledger(0)
	out, _ := b.run(0, "dead", "list", "onceward.yaml", "--json")
	if n := strings.Count(out, "\n"); n != 4 {
		t.Fatalf("%d dead letters:\n%s", n, out)
	}
	out, _ = b.run(0, "dead", "show", "onceward.yaml", "--reason", "not JSON")
	contains(t, out, `\x1b[31mred\xff`, "payments.ndjson:3", "of 3,009 bytes; --raw prints them all")
	out, _ = b.run(0, "dead", "show", "onceward.yaml", "--reason", "not JSON", "--raw")
	if !strings.HasPrefix(out, "\x1b[31mred\xff") || len(out) != 3009 {
		t.Errorf("raw: %d bytes", len(out))
	}
	for _, verb := range []string{"show", "replay", "discard"} {
		_, errs := b.run(1, "dead", verb, "onceward.yaml", "--id", "nobody")
		contains(t, errs, "onceward: no dead letters match")
	}
	b.run(1, "dead", "replay", "onceward.yaml", "--seq", "99")
	b.run(2, "dead", "replay", "onceward.yaml")
	b.run(2, "dead", "discard", "onceward.yaml")

	b.exec("INSERT INTO accounts VALUES ('late', 0)")
	out, _ = b.run(0, "dead", "replay", "onceward.yaml", "--id", "1")
	contains(t, out, "1 dead letter will be processed again")
	out, _ = b.run(0, "dead", "replay", "onceward.yaml", "--id", "3")
	contains(t, out, `"3" was applied already by consumer ledger, at 20`)
	b.ledger(0)
	if got := b.query("SELECT cents FROM accounts WHERE id = 'late'"); got != "-1" {
		t.Errorf("the replayed payment: balance %s", got)
	}
	out, _ = b.run(0, "dead", "discard", "onceward.yaml", "--all", "--json")
	contains(t, out, `{"discarded":3}`)
	out, _ = b.run(0, "dead", "list", "onceward.yaml")
	contains(t, out, "no dead letters match")
	out, _ = b.run(0, "dead", "replay", "onceward.yaml", "--all")
	contains(t, out, "0 dead letters will")
	b.write("payments.ndjson", pay("1", "late", 1)+pay("2", "never", 1))
	if s := b.ledger(0, "--strict"); s.Duplicates != 2 {
		t.Errorf("a discarded message that comes again: %+v", s)
	}
}

func TestExplainAndForget(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	_, errs := b.run(1, "explain", "onceward.yaml", "1")
	contains(t, errs, "does not exist yet")
	b.ledger(0)
	out, _ := b.run(0, "explain", "onceward.yaml", "1")
	contains(t, out, "finished  ledger")
	b.run(1, "explain", "onceward.yaml", "2")
	out, _ = b.run(0, "forget", "onceward.yaml", "ledger", "1", "--json")
	contains(t, out, `{"forgotten":1}`)
	if s := b.ledger(0); s.Processed != 1 {
		t.Errorf("after it was forgotten: %+v", s)
	}
	_, errs = b.run(1, "forget", "onceward.yaml", "ledger", "2")
	contains(t, errs, `consumer "ledger" has no record of that`)
	out, _ = b.run(0, "forget", "onceward.yaml", "ledger", "2", "1")
	contains(t, out, "1 record removed: when such a message comes again, ledger processes it again")
	out, _ = b.run(0, "purge", "onceward.yaml", "ledger", "--keep", "30d")
	contains(t, out, "0 records removed")
}

func TestMigrateAndCheck(t *testing.T) {
	t.Parallel()
	b := newBox(t, "")
	out, _ := b.run(0, "migrate", "print")
	contains(t, out, "-- 1: ", "CREATE TABLE onceward_")
	b.run(2, "migrate", "print", "--dialect", "oracle")
	_, errs := b.run(1, "migrate", "status", "onceward.yaml")
	contains(t, errs, "no tables of Onceward yet; run: onceward migrate up")
	b.run(0, "migrate", "up", "onceward.yaml")
	out, _ = b.run(0, "migrate", "status", "onceward.yaml", "--json")
	contains(t, out, `"have":`)
	out, _ = b.run(0, "check", "onceward.yaml")
	contains(t, out, "ledger: effectively-once from file:payments.ndjson: good")
	out, _ = b.run(0, "version")
	contains(t, out, "onceward ")
	out, _ = b.run(0, "--help")
	contains(t, out, "Usage: onceward")
}

func TestDemo(t *testing.T) {
	t.Parallel()
	b := &box{t, t.TempDir()}
	out, _ := b.run(0, "demo", "--messages", "2000", "--kills", "2", "--json")
	lines := strings.Split(out, "\n")
	contains(t, lines[0], `"way":"onceward"`, `"kills":2,"lost":0,"repeated":0`, `"off_cents":0`)
	contains(t, lines[1], `"way":"lookup"`, `"lost":0,"repeated":0`)
}
