package handlers

import (
	"errors"
	"strings"
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

func TestValuesLoseNothing(t *testing.T) {
	for body, want := range map[string]any{
		`{"v":1}`:                      int64(1),
		`{"v":-9223372036854775808}`:   int64(-1 << 63),
		`{"v":9223372036854775807}`:    int64(1<<63 - 1),
		`{"v":9223372036854775808}`:    "9223372036854775808",
		`{"v":123456789012345678901}`:  "123456789012345678901",
		`{"v":0.1}`:                    "0.1",
		`{"v":1.50}`:                   "1.50",
		`{"v":1e3}`:                    "1e3",
		`{"v":-0.0}`:                   "-0.0",
		`{"v":"1"}`:                    "1",
		`{"v":"a\u00e9\n\u0000"}`:      "aé\n\x00",
		"{\"v\":\"\xff\"}":             "\xff",
		`{"v":true}`:                   int64(1),
		`{"v":false}`:                  int64(0),
		`{"v":null}`:                   nil,
		`{"v":{"a": [1, 2.0]}}`:        `{"a": [1, 2.0]}`,
		`{"v":[]}`:                     `[]`,
		`{"v":"first","v":"the last"}`: "the last",
	} {
		got, err := values(sqltext.SQLite, []config.Param{{Name: "v", Path: jsonpath.MustParse("$.v")}}, []byte(body))
		if err != nil || got[0] != want {
			t.Errorf("%s: got %#v %v, want %#v", body, got, err, want)
		}
	}
}

func TestBodiesWithoutTheValueArePermanentErrors(t *testing.T) {
	for body, want := range map[string]error{
		`{}`: jsonpath.ErrMissing, ``: jsonpath.ErrNotJSON, `nonsense`: jsonpath.ErrNotJSON, `[]`: jsonpath.ErrMissing,
	} {
		_, err := values(sqltext.SQLite, []config.Param{{Name: "v", Path: jsonpath.MustParse("$.v")}}, []byte(body))
		if !onceward.IsPermanent(err) || !errors.Is(err, want) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestValuesForServers(t *testing.T) {
	for body, want := range map[string]struct{ postgres, mysql any }{
		`1`:                            {"1", int64(1)},
		`19.90`:                        {"19.90", decimal{"19.90", 2}},
		`-1e3`:                         {"-1e3", decimal{"-1e3", 0}},
		`1.25E-2`:                      {"1.25E-2", decimal{"1.25E-2", 4}},
		`1.25e+1`:                      {"1.25e+1", decimal{"1.25e+1", 1}},
		`9223372036854775808`:          {"9223372036854775808", decimal{"9223372036854775808", 0}},
		`1e-31`:                        {"1e-31", "1e-31"},
		`1e65`:                         {"1e65", "1e65"},
		`1e99999999999999999999`:       {"1e99999999999999999999", "1e99999999999999999999"},
		`"1"`:                          {"1", "1"},
		`true`:                         {"true", int64(1)},
		`false`:                        {"false", int64(0)},
		`null`:                         {nil, nil},
		`[1.0]`:                        {"[1.0]", "[1.0]"},
		strings.Repeat("9", 66):        {strings.Repeat("9", 66), strings.Repeat("9", 66)},
		strings.Repeat("9", 64) + ".9": {strings.Repeat("9", 64) + ".9", decimal{strings.Repeat("9", 64) + ".9", 1}},
	} {
		params := []config.Param{{Name: "v", Path: jsonpath.MustParse("$.v")}}
		for dialect, want := range map[sqltext.Dialect]any{sqltext.Postgres: want.postgres, sqltext.MySQL: want.mysql} {
			got, err := values(dialect, params, []byte(`{"v":`+body+`}`))
			if err != nil || got[0] != want {
				t.Errorf("%s: got %#v %v, want %#v", body, got, err, want)
			}
		}
	}
}
