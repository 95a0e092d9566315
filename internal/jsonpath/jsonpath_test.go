package jsonpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFind(t *testing.T) {
	doc := []byte(` {"a": {"b": [10, {"c": "x"}], "d e": null}, "n": -1.50, "a.b": 7, "t": true, "n": 2.00, "": 5, "\u0061b": "esc"} `)
	for _, c := range []struct{ path, want string }{
		{"$.a.b[0]", "10"},
		{"$.a.b[1].c", `"x"`},
		{"$.a['d e']", "null"},
		{"$['a.b']", "7"},
		{"$.n", "2.00"}, // the last of two counts
		{"$.t", "true"},
		{"$['']", "5"},
		{"$.ab", `"esc"`},
		{"$.a.b", `[10, {"c": "x"}]`},
	} {
		got, err := MustParse(c.path).Find(doc)
		if err != nil || string(got) != c.want {
			t.Errorf("%s = %s, %v; want %s", c.path, got, err, c.want)
		}
	}
	for _, path := range []string{"$.x", "$.a.b[2]", "$.a[0]", "$.n.x", "$.a.b.c", "$[0]"} {
		if got, err := MustParse(path).Find(doc); !errors.Is(err, ErrMissing) {
			t.Errorf("%s = %s, %v; want ErrMissing", path, got, err)
		}
	}
	for _, bad := range []string{"", "{", `{"a":}`, "nope", "{} {}"} {
		if _, err := MustParse("$.a").Find([]byte(bad)); !errors.Is(err, ErrNotJSON) {
			t.Errorf("in %q: %v; want ErrNotJSON", bad, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, path := range []string{"", "a", ".a", "$a", "$.", "$..a", "$[", "$[x]", "$[-1]", "$['a", "$.a[1", "$[99999999999]"} {
		if _, err := Parse(path); err == nil {
			t.Errorf("Parse(%q) succeeded", path)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{`"plain"`, "plain"},
		{`"a\"b\\\/\b\f\n\r\t\u00e9"`, "a\"b\\/\b\f\n\r\té"},
		{`"\ud83d\ude00"`, "😀"},
		{"\"\xff\"", "\xff"}, // kept, where encoding/json would make U+FFFD of it
		{"1.50", "1.50"},
		{"-0", "-0"},
		{"12345678901234567890", "12345678901234567890"},
	} {
		if got, err := Value(c.value).Text(); err != nil || got != c.want {
			t.Errorf("Text(%s) = %q, %v; want %q", c.value, got, err, c.want)
		}
	}
	for _, bad := range []string{`"\ud800"`, `"\udc00"`, `"\ud800\u0041"`, `"\ud800x"`, "null", "true", "{}", "[]"} {
		if got, err := Value(bad).Text(); err == nil {
			t.Errorf("Text(%s) = %q, want an error", bad, got)
		}
	}
}

// FuzzFind compares with encoding/json on every member of any document.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"x"]},"c":"\u0064"}`))
	f.Add([]byte(`[[],{},"",0,null]`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		MustParse("$.a.b[0]").Find(doc) //nolint:errcheck // must not panic, whatever it finds
		var members map[string]json.RawMessage
		if json.Unmarshal(doc, &members) != nil || !utf8.Valid(doc) {
			return
		}
		for name, want := range members {
			if strings.ContainsAny(name, "]'\ufffd") || strings.Contains(string(doc), `\ud`) || strings.Contains(string(doc), `\uD`) {
				continue
			}
			got, err := Path{steps: []step{{name: name}}}.Find(doc)
			if err != nil || !bytes.Equal(bytes.TrimSpace(want), got) {
				t.Fatalf("member %q of %q = %q, %v; want %q", name, doc, got, err, want)
			}
		}
	})
}
