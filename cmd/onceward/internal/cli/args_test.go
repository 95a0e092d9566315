package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceward/onceward"
)

// Three ids that look alike once they are folded to UTF-8, and one with a NUL.
const (
	rawID    = "z\xff"
	foldedID = "z\ufffd"
	otherID  = "z\xfe"
	nulID    = "a\x00b"
)

// idBox is a box with a record of each of these ids.
func idBox(t *testing.T) *box {
	b := newBox(t, pay("1", "a", 1))
	b.ledger(0)
	for _, id := range []string{rawID, foldedID, otherID, nulID} {
		b.exec(fmt.Sprintf("INSERT INTO onceward_inbox SELECT consumer, x'%x', fp, at FROM onceward_inbox WHERE id = x'%x'",
			onceward.StoredID(id), onceward.StoredID("1")))
	}
	return b
}

func (b *box) knows(ids ...string) {
	b.Helper()
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	for _, id := range []string{rawID, foldedID, otherID, nulID} {
		n := b.query(fmt.Sprintf("SELECT count(*) FROM onceward_inbox WHERE id = x'%x'", onceward.StoredID(id)))
		if (n == "1") != known[id] {
			b.Errorf("%q: %s records", id, n)
		}
	}
}

func TestIDsAreBytes(t *testing.T) {
	t.Parallel()
	b := idBox(t)
	b.knows(rawID, foldedID, otherID, nulID)
	out, _ := b.run(0, "explain", "onceward.yaml", rawID)
	contains(t, out, `"z\xff"`)
	out, _ = b.run(0, "explain", "onceward.yaml", rawID, "--json")
	contains(t, out, `"id":"\"z\\xff\""`, `"id_base64":"ev8="`)
	out, _ = b.run(0, "explain", "onceward.yaml", foldedID, "--json")
	if contains(t, out, `"id":"z`+"\ufffd"+`"`); strings.Contains(out, "base64") {
		t.Errorf("an id that is UTF-8 needs no base64: %s", out)
	}
	b.run(0, "forget", "onceward.yaml", "ledger", rawID)
	b.knows(foldedID, otherID, nulID)
	b.run(0, "forget", "onceward.yaml", "ledger", `"z\xfe"`, `"a\x00b"`)
	b.knows(foldedID)
}

func TestMalformedQuotedIDsAreRefused(t *testing.T) {
	t.Parallel()
	b := idBox(t)
	for _, bad := range []string{`"`, `"a`, `"\q"`, `"a"b`} {
		_, errs := b.run(2, "forget", "onceward.yaml", "ledger", bad)
		contains(t, errs, "begins with a double quote, but is not an id as lists print it")
	}
	_, errs := b.run(2, "explain", "onceward.yaml", onceward.Quote(strings.Repeat("x", 100)))
	contains(t, errs, "is the beginning of an id only", "--json")
	b.knows(rawID, foldedID, otherID, nulID)
}

func TestDeadLettersAreFoundByTheIDThatListsPrint(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("x", "nobody", 1))
	b.ledger(0)
	b.exec(fmt.Sprintf("UPDATE onceward_queue SET id = x'%x', msg_id = x'%x'", onceward.StoredID(rawID), rawID))
	out, _ := b.run(0, "dead", "list", "onceward.yaml")
	contains(t, out, `"z\xff"`)
	out, _ = b.run(0, "dead", "list", "onceward.yaml", "--json")
	contains(t, out, `"id_base64":"ev8="`)
	b.run(0, "dead", "show", "onceward.yaml", "--id", rawID)
	b.run(0, "dead", "show", "onceward.yaml", "--id", `"z\xff"`)
	b.run(1, "dead", "show", "onceward.yaml", "--id", foldedID)
	b.run(2, "dead", "show", "onceward.yaml", "--id", `"z`)
}

func TestDashesAreExplained(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("-0", "nobody", 1))
	b.ledger(0)
	_, errs := b.run(2, "explain", "onceward.yaml", "-0")
	contains(t, errs, "goes after --, as in: onceward explain CONFIG -- -0")
	_, errs = b.run(2, "dead", "list", "onceward.yaml", "--id", "-0")
	contains(t, errs, "goes after =, as in: --id=-0")
	b.run(0, "explain", "onceward.yaml", "--", "-0")
	b.run(0, "dead", "show", "onceward.yaml", "--id=-0")
}
