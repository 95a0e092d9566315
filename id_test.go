package onceward_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward"
)

// golden ids never change: ids that producers made with an earlier release must come out the same.
var golden = []struct {
	parts []any
	id    string
}{
	{[]any{"order", 42, "created"}, "order:42:created"},
	{[]any{"a", "bc"}, "a:bc"},
	{[]any{"ab", "c"}, "ab:c"},
	{[]any{"a"}, "a"},
	{[]any{"a", ""}, "a:"},
	{[]any{"", "a"}, ":a"},
	{[]any{"a:b", "c"}, "a%3Ab:c"},
	{[]any{"a", "b:c"}, "a:b%3Ac"},
	{[]any{"50%"}, "50%25"},
	{[]any{"a#b"}, "a%23b"},
	{[]any{1}, "1"},
	{[]any{"1"}, "%31"},
	{[]any{"-7"}, "%2D7"},
	{[]any{"007"}, "%3007"},
	{[]any{"1a"}, "1a"},
	{[]any{"-"}, "-"},
	{[]any{int8(-5), uint8(200), int64(-1 << 63), uint64(1<<64 - 1)}, "-5:200:-9223372036854775808:18446744073709551615"},
	{[]any{"line\nbreak\x00\x7f"}, "line%0Abreak%00%7F"},
	{[]any{"zażółć", "東京", "😀"}, "zażółć:東京:😀"},
	{[]any{"e\u0301"}, "e\u0301"}, // NFD stays NFD
	{[]any{"\u00e9"}, "\u00e9"},
	{[]any{"\xff\xfe"}, "\xff\xfe"},
	{[]any{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, "2026-01-02T03%3A04%3A05Z"},
}

func TestIDGolden(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range golden {
		if got := onceward.ID(g.parts...); got != g.id {
			t.Errorf("ID(%q) = %q, want %q", g.parts, got, g.id)
		}
		if seen[g.id] {
			t.Errorf("two different part lists give %q", g.id)
		}
		seen[g.id] = true
	}
}

// Producers in other languages must come to the same ids; testdata/ids.py is how it is done in Python.
func TestIDGoldenInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is missing")
		}
		t.Skip("SKIPPED, NOT TESTED: python3 is missing")
	}
	var in, want bytes.Buffer
	for _, g := range golden {
		parts, err := json.Marshal(g.parts)
		if err != nil || !utf8.ValidString(g.id) {
			continue // not to be had from JSON
		}
		in.Write(append(parts, '\n'))
		id, _ := json.Marshal(g.id) //nolint:errchkjson // a string always can
		want.Write(append(id, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/ids.py")
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(string(out), "\n"), strings.Split(want.String(), "\n")
	if len(got) != len(expected) || len(got) < 15 {
		t.Fatalf("%d ids, want %d", len(got), len(expected))
	}
	for i := range got {
		var g, w string
		if got[i] != "" && (json.Unmarshal([]byte(got[i]), &g) != nil || json.Unmarshal([]byte(expected[i]), &w) != nil || g != w) {
			t.Errorf("Python gives %s, want %s", got[i], expected[i])
		}
	}
}

func TestIDRefusesOtherTypes(t *testing.T) {
	for _, parts := range [][]any{{}, {1.5}, {nil}, {true}, {[]byte("a")}, {map[string]int{}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ID(%v) did not panic", parts)
				}
			}()
			onceward.ID(parts...)
		}()
	}
}

// seed makes a random test repeatable: it is printed when the test fails, and taken from the
// environment to run the same again.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("ONCEWARD_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to run the same again: ONCEWARD_SEED=%d", n)
		}
	})
	return rand.New(rand.NewPCG(n, n))
}

func TestIDsOfDifferentPartsDiffer(t *testing.T) {
	r := seed(t)
	alphabet := []string{"a", "b", ":", "%", "#", "1", "-", "%3A", "", "é", "\x00"}
	of := map[string]string{}
	for range 200_000 {
		parts := make([]any, 1+r.IntN(3))
		for i := range parts {
			var b strings.Builder
			for range r.IntN(4) {
				b.WriteString(alphabet[r.IntN(len(alphabet))])
			}
			parts[i] = b.String()
			if n, err := strconv.Atoi(b.String()); err == nil && strconv.Itoa(n) == b.String() && r.IntN(2) == 0 {
				parts[i] = n
			}
		}
		id := onceward.ID(parts...)
		shape := ""
		for _, p := range parts {
			if n, ok := p.(int); ok {
				shape += "int " + strconv.Itoa(n) + "\xff"
			} else {
				shape += "text " + p.(string) + "\xff"
			}
		}
		if before, ok := of[id]; ok && before != shape {
			t.Fatalf("%q is the id of %q and of %q", id, before, shape)
		}
		of[id] = shape
	}
}

func TestStoredID(t *testing.T) {
	const uuid = "0190c5a2-6f3b-7c1d-8e2f-1a2b3c4d5e6f"
	long := strings.Repeat("x", onceward.MaxLiteralID)
	pairs := [][2]string{
		{"abc", "ABC"}, {"abc", "abc "}, {"\u00e9", "e\u0301"}, {"ß", "ss"}, {"ı", "i"}, {"a", "á"},
		{long + "a", long + "b"}, {long, long + "x"}, {uuid, strings.ToUpper(uuid)}, {"\x00", "\x00\x00"},
		{"\x01" + uuid[:16], uuid}, {"a\x00", "a"}, {"\xff", "\xfe"}, {" ", "\t"}, {"'", "\""},
		{strings.Repeat("y", 64<<10) + "1", strings.Repeat("y", 64<<10) + "2"},
	}
	for _, p := range pairs {
		a, b := onceward.StoredID(p[0]), onceward.StoredID(p[1])
		if a == b {
			t.Errorf("%.40q and %.40q have the same stored form", p[0], p[1])
		}
		if len(a) > 255 || len(b) > 255 {
			t.Errorf("stored forms of %.40q are %d and %d bytes", p[0], len(a), len(b))
		}
		for i, stored := range []string{a, b} {
			if id, ok := onceward.LiteralID(stored); ok && id != p[i] {
				t.Errorf("LiteralID gives %.40q for %.40q", id, p[i])
			}
		}
	}
	// A literal that looks like a form is not that form.
	for _, id := range []string{uuid, long + "x", "\x00abc", "\x03"} {
		if form := onceward.StoredID(id); onceward.StoredID(form) == form {
			t.Errorf("the stored form of %.40q stands for itself as an id too", id)
		}
	}
	if got := onceward.StoredID(uuid); len(got) != 17 {
		t.Errorf("a UUID takes %d bytes", len(got))
	}
}

func FuzzStoredID(f *testing.F) {
	f.Add("a", "b")
	f.Add("0190c5a2-6f3b-7c1d-8e2f-1a2b3c4d5e6f", "0190c5a2-6f3b-7c1d-8e2f-1a2b3c4d5e6F")
	f.Fuzz(func(t *testing.T, a, b string) {
		if sa, sb := onceward.StoredID(a), onceward.StoredID(b); (sa == sb) != (a == b) || len(sa) > 255 {
			t.Fatalf("%q → %q, %q → %q", a, sa, b, sb)
		}
	})
}
