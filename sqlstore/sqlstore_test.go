package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
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
		for dialect, open := range map[string]func(*sql.DB, *Config) (*Store, error){"sqlite": SQLite, "postgres": Postgres, "mysql": MySQL} {
			if _, err := open(new(sql.DB), &Config{Prefix: prefix}); (err == nil) != ok {
				t.Errorf("%s with prefix %q: %v", dialect, prefix, err)
			}
			if _, err := Migrations(dialect, &Config{Prefix: prefix}); (err == nil) != ok {
				t.Errorf("Migrations of %s with prefix %q: %v", dialect, prefix, err)
			}
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, open := range []func(*sql.DB, *Config) (*Store, error){SQLite, Postgres, MySQL} {
		if _, err := open(nil, nil); err == nil {
			t.Error("a nil db was accepted")
		}
	}
	if _, err := SQLite(new(sql.DB), &Config{LockTimeout: -1}); err == nil {
		t.Error("a negative LockTimeout was accepted")
	}
	if _, err := Migrations("oracle", nil); err == nil {
		t.Error("an unknown dialect was accepted")
	}
}

func TestMigrationsAreTemplated(t *testing.T) {
	for _, dialect := range []string{"sqlite", "postgres", "mysql"} {
		ms, err := Migrations(dialect, &Config{Prefix: "shop_"})
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range ms {
			up := strings.ReplaceAll(m.Up, "'{}'", "")
			if m.Version != i+1 || m.Name == "" || strings.ContainsAny(up, "{}") || strings.Contains(up, "onceward_") || !strings.Contains(up, "shop_") {
				t.Errorf("%s migration %d: %+v", dialect, i, m)
			}
			if !strings.Contains(up, fmt.Sprintf("INSERT INTO shop_schema (version, name, at) VALUES (%d,", m.Version)) {
				t.Errorf("%s migration %d does not record itself", dialect, m.Version)
			}
		}
	}
}

func TestStatementsAreTemplated(t *testing.T) {
	config, err := (&Config{Prefix: "shop_"}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []dialect{newSQLite(config), newPostgres(config), newMySQL(config)} {
		st := d.statements()
		v := reflect.ValueOf(*st)
		all := maps.Clone(st.own)
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.String {
				all[v.Type().Field(i).Name] = v.Field(i).String()
			}
		}
		for name, text := range all {
			before, row, after := cutRows(text)
			text = strings.NewReplacer("{list}", "", "SAVEPOINT onceward_handler", "").Replace(before + row + after)
			if strings.ContainsAny(text, "{}") || strings.Contains(text, "onceward_") {
				t.Errorf("%s, %s: %s", d.name(), name, text)
			}
		}
	}
}

func TestBinding(t *testing.T) {
	args := []any{int64(1), table{{[]byte("a'"), int64(-2)}, {[]byte{}, int64(3)}}, "s", list{int64(4), int64(5)}}
	for name, c := range map[string]struct {
		bind binder
		stmt string
		want string
	}{
		"marks":    {bindMarks, "? {rows (?, ?)} ? ({list})", "? (?, ?),(?, ?) ? (?,?) [1 [97 39] -2 [] 3 s 4 5]"},
		"literals": {bindLiterals, "? {rows (?, ?)} ? ({list})", "? (x'6127', -2),(x'', 3) ? (4,5) [1 s]"},
		"numbers":  {bindNumbers, "? (?, ?) ? (?)", `$1 ($2, $3) $4 ($5) [1 {"\\x6127","\\x"} {-2,3} s {4,5}]`},
	} {
		stmt, got := c.bind(c.stmt, args)
		if all := fmt.Sprint(stmt, " ", got); all != c.want {
			t.Errorf("%s: %s, want %s", name, all, c.want)
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
	if permanent, class := (sqliteErrors{}).class(fmt.Errorf("query: %w", sql.ErrConnDone)); class != onceward.ErrUnavailable || permanent { //nolint:errorlint // the sentinel itself
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
