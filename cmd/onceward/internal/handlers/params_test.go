package handlers

import (
	"errors"
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
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
		got, err := values([]config.Param{{Name: "v", Path: jsonpath.MustParse("$.v")}}, []byte(body))
		if err != nil || got[0] != want {
			t.Errorf("%s: got %#v %v, want %#v", body, got, err, want)
		}
	}
}

func TestBodiesWithoutTheValueArePermanentErrors(t *testing.T) {
	for body, want := range map[string]error{
		`{}`: jsonpath.ErrMissing, ``: jsonpath.ErrNotJSON, `nonsense`: jsonpath.ErrNotJSON, `[]`: jsonpath.ErrMissing,
	} {
		_, err := values([]config.Param{{Name: "v", Path: jsonpath.MustParse("$.v")}}, []byte(body))
		if !onceward.IsPermanent(err) || !errors.Is(err, want) {
			t.Errorf("%q: %v", body, err)
		}
	}
}
