package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/leak"
)

func TestPrefixIsChecked(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "onceward_": true, "_": true, "a1": true, "a" + strings.Repeat("b", 30): true,
		"a" + strings.Repeat("b", 31): false, "1a": false, "A": false, "a-": false, "a.b": false, "a b": false,
		"a;": false, "a'": false, "ä": false, "a\n": false, "{p}": false,
	} {
		_, err := SQLite(new(sql.DB), &Config{Prefix: prefix})
		if (err == nil) != ok {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if _, other := Migrations("sqlite", &Config{Prefix: prefix}); (other == nil) != ok {
			t.Errorf("Migrations with prefix %q: %v", prefix, other)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := SQLite(nil, nil); err == nil {
		t.Error("a nil db was accepted")
	}
	if _, err := SQLite(new(sql.DB), &Config{LockTimeout: -1}); err == nil {
		t.Error("a negative LockTimeout was accepted")
	}
	if _, err := Migrations("oracle", nil); err == nil {
		t.Error("an unknown dialect was accepted")
	}
}

func TestMigrationsAreTemplated(t *testing.T) {
	ms, err := Migrations("sqlite", &Config{Prefix: "shop_"})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range ms {
		if m.Version != i+1 || m.Name == "" || strings.ContainsAny(m.Up, "{}") || strings.Contains(m.Up, "onceward_") || !strings.Contains(m.Up, "shop_") {
			t.Errorf("migration %d: %+v", i, m)
		}
		if !strings.Contains(m.Up, fmt.Sprintf("INSERT INTO shop_schema (version, name, at) VALUES (%d,", m.Version)) {
			t.Errorf("migration %d does not record itself", m.Version)
		}
	}
}

func TestStatementsAreTemplated(t *testing.T) {
	v := reflect.ValueOf(*(*sqlite)(nil).statements("shop_"))
	for i := range v.NumField() {
		stmt := strings.NewReplacer("{rows}", "", "{list}", "").Replace(v.Field(i).String())
		if strings.ContainsAny(stmt, "{};") || strings.Contains(stmt, "onceward_") {
			t.Errorf("%s: %s", v.Type().Field(i).Name, stmt)
		}
	}
}

func TestHeadersComeBackAsTheyAre(t *testing.T) {
	for _, h := range []onceward.Headers{
		nil,
		{"a": {"b"}},
		{"a": {"1", "2", ""}, "A": {"<&>\u2028"}, "": {"x"}, "~": {"~"}, "none": {}},
		{"a": {"\xff\x00"}, "b": {"plain"}},
		{"\xfe": {"x", "\xc3\x28"}},
		{"split": {"\xc3", "\xa9"}},
	} {
		b, err := encodeHeaders(h)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeHeaders(b)
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%q became %q, %v by way of %q", h, got, err, b)
		}
	}
	for _, b := range []string{"x", "~", "~{\"a\":[\"*\"]}", "[]"} {
		if h, err := decodeHeaders([]byte(b)); err == nil {
			t.Errorf("%q was read as %q", b, h)
		}
	}
}

type foreignError struct{}

func (foreignError) Error() string { return "not found" }
func (foreignError) Code() int     { return codeBusy }

// An error of the handler that happens to have a code is not taken for one of the database.
func TestForeignCodesAreNotClassified(t *testing.T) {
	for _, err := range []error{foreignError{}, fmt.Errorf("wrapped: %w", foreignError{}), errors.New("database is locked"), nil} {
		if c := sqliteCode(err); c != 0 {
			t.Errorf("%v has code %d", err, c)
		}
	}
	if class, permanent := (sqliteErrors{}).class(fmt.Errorf("query: %w", sql.ErrConnDone)); class != onceward.ErrUnavailable || permanent { //nolint:errorlint // the sentinel itself
		t.Errorf("a connection that is gone: %v, %v", class, permanent)
	}
}

func TestWaitIsWoken(t *testing.T) {
	s, err := SQLite(new(sql.DB), nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := s.notify.now("q")
	s.notify.signal("q") // while somebody looks
	s.notify.empty("q", seen)
	start := time.Now()
	if err := s.Wait(t.Context(), "q"); err != nil || time.Since(start) >= pollInterval {
		t.Errorf("Wait = %v after %v, want it to notice the signal it missed", err, time.Since(start))
	}
	done := make(chan error, 1)
	go func() { done <- s.Wait(t.Context(), "q") }()
	if err := <-done; err != nil || time.Since(start) < pollInterval/2 {
		t.Errorf("Wait = %v after %v: a signal wakes once only", err, time.Since(start))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx, "q"); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v after the context's end", err)
	}
}

func TestSameIDsArePartedForParking(t *testing.T) {
	ps := make([]onceward.Parking, 5)
	for i, id := range []string{"a", "b", "a", "c", "a"} {
		ps[i].ID = id
	}
	if got := fmt.Sprint(apart(ps)); got != "[[0 1 3] [2] [4]]" {
		t.Errorf("apart = %s", got)
	}
}

func TestMain(m *testing.M) { leak.Check(m) }
