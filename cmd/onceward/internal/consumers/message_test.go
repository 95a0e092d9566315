package consumers

import (
	"testing"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

func TestMessageID(t *testing.T) {
	m := &onceward.Message{
		ID: "broker's", Headers: onceward.Headers{"h": {"of the header"}},
		Body: []byte(`{"n":42,"s":"42","f":1.50,"o":{"x":"a:b"},"e":"","t":true,"big":123456789012345678901}`),
	}
	for _, c := range []struct {
		spec []string
		want string // empty: an error
	}{
		{[]string{"$.n"}, "42"},
		{[]string{"$.s"}, "42"},
		{[]string{"$.f"}, "1.50"},
		{[]string{"$.big"}, "123456789012345678901"},
		{[]string{"header:h"}, "of the header"},
		{[]string{"content"}, "a digest"},
		{[]string{"order", "$.n"}, "order:42"},
		{[]string{"order", "$.s"}, "order:%342"},
		{[]string{"$.o.x", "$.f"}, "a%3Ab:1.50"},
		{[]string{"order", "$.e"}, ""},
		{[]string{"$.none"}, ""},
		{[]string{"$.t"}, ""},
		{[]string{"$.o"}, ""},
	} {
		id, err := config.ParseID(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := MessageID(id, m)
		switch {
		case c.spec[0] == "content":
			if len(got) != 7+64 || got[:7] != "sha256:" {
				t.Errorf("content: %s", got)
			}
		case got != c.want || (err == nil) != (c.want != ""):
			t.Errorf("%v: got %q %v, want %q", c.spec, got, err, c.want)
		}
	}
	if id, err := MessageID(config.ID{}, m); id != "broker's" || err != nil {
		t.Errorf("the broker's own: %q %v", id, err)
	}
}
