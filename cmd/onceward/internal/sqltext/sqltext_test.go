package sqltext

import (
	"strings"
	"testing"
)

func TestParametersBecomePlaces(t *testing.T) {
	for text, want := range map[string]string{
		"UPDATE a SET b = b - :c WHERE id = :id":     "UPDATE a SET b = b - ? WHERE id = ?|c,id",
		"INSERT INTO a VALUES (:x, :x, :y);":         "INSERT INTO a VALUES (?, ?, ?)|x,x,y",
		"UPDATE a SET b = ':no' || \":no\" || `:no`": "UPDATE a SET b = ':no' || \":no\" || `:no`|",
		"UPDATE a SET b = 'it''s :no', c = :yes":     "UPDATE a SET b = 'it''s :no', c = ?|yes",
		"UPDATE [a:b] SET c = :d -- :no\n":           "UPDATE [a:b] SET c = ?|d",
		"/* :no ; */ DELETE FROM a WHERE b = :c ; ":  "DELETE FROM a WHERE b = ?|c",
		"SELECT :ä, x::text":                         "SELECT ?, x::text|ä",
		"SELECT '$.a' -> :b; -- the end":             "SELECT '$.a' -> ?|b",
	} {
		s, err := Parse(SQLite, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Text + "|" + strings.Join(s.Args, ","); strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "there is no statement",
		" -- only a comment":        "there is no statement",
		";":                         "there is no statement",
		"SELECT 1; SELECT 2":        "several statements",
		"bEgIn":                     "BEGIN is not for handlers",
		"/**/ROLLBACK TO x":         "ROLLBACK is not for handlers",
		"SAVEPOINT a":               "SAVEPOINT is not for handlers",
		"RELEASE a":                 "RELEASE is not for handlers",
		"END":                       "END is not for handlers",
		"ATTACH 'x' AS y":           "ATTACH is not for handlers",
		"PRAGMA foreign_keys = OFF": "PRAGMA is not for handlers",
		"VACUUM":                    "VACUUM is not for handlers",
		"SELECT ?1":                 "parameters are written :name, not ?1",
		"SELECT @a":                 "parameters are written :name, not @a",
		"SELECT $a":                 "parameters are written :name, not $a",
		"SELECT 'a":                 "' is not closed",
		"SELECT [a":                 "[ is not closed",
		"SELECT /* a":               "not closed by */",
		"SELECT : a":                "name is missing",
	} {
		if _, err := Parse(SQLite, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestDialectsHaveTheirOwnQuotesAndMarks(t *testing.T) {
	for _, c := range []struct {
		dialect    Dialect
		text, want string
	}{
		{Postgres, "UPDATE a SET b = b - :c, d = :id WHERE id = :id", "UPDATE a SET b = b - $1, d = $2 WHERE id = $2|c,id"},
		{Postgres, "SELECT :a::numeric * 100, x::text", "SELECT $1::numeric * 100, x::text|a"},
		{Postgres, `SELECT E'it\'s :no', 'c:\', :yes`, `SELECT E'it\'s :no', 'c:\', $1|yes`},
		{Postgres, `SELECT e'\\', :yes, note'\' `, `SELECT e'\\', $1, note'\'|yes`},
		{Postgres, "SELECT $$ :no ' $$, $a$ :no $$ $a$, :yes", "SELECT $$ :no ' $$, $a$ :no $$ $a$, $1|yes"},
		{Postgres, `SELECT "a:b" FROM foo$bar$ WHERE c = :d`, `SELECT "a:b" FROM foo$bar$ WHERE c = $1|d`},
		{Postgres, "SELECT a[1:2], b[:2], f(c := :d)", "SELECT a[1:2], b[:2], f(c := $1)|d"},
		{Postgres, "SELECT j @> :a, j ? 'x', @ n # 1", "SELECT j @> $1, j ? 'x', @ n # 1|a"},
		{Postgres, "SELECT /* a /* b */ :no */ :yes", "SELECT $1|yes"},
		{Postgres, "SET LOCAL app.tenant = 'x'", "SET LOCAL app.tenant = 'x'|"},
		{MySQL, "UPDATE a SET b = :c, d = :c", "UPDATE a SET b = ?, d = ?|c,c"},
		{MySQL, `SELECT 'it\'s :no', "\":no", ` + "`:no\\`" + `, :yes`, `SELECT 'it\'s :no', "\":no", ` + "`:no\\`" + `, ?|yes`},
		{MySQL, "SELECT 5--3, :a # :no\n, :b -- :no", "SELECT 5--3, ? , ?|a,b"},
		{MySQL, "SELECT /*+ MAX_EXECUTION_TIME(1) */ :a /* :no */", "SELECT /*+ MAX_EXECUTION_TIME(1) */ ?|a"},
	} {
		s, err := Parse(c.dialect, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := strings.Join(strings.Fields(s.Text+"|"+strings.Join(s.Args, ",")), " "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestDialectsRefuseTheirOwn(t *testing.T) {
	for _, c := range []struct {
		dialect    Dialect
		text, want string
	}{
		{Postgres, "SELECT $1", "not $1"},
		{Postgres, "SELECT $a$ x", "$a$ is not closed"},
		{Postgres, "SELECT E'\\'", "' is not closed"},
		{Postgres, "SELECT /* /* */", "not closed by */"},
		{Postgres, "SET search_path = x", "SET is not for handlers: it would outlive"},
		{Postgres, "PREPARE TRANSACTION 'x'", "PREPARE is not for handlers"},
		{Postgres, "abort", "ABORT is not for handlers"},
		{MySQL, "SELECT @a", "not @a"},
		{MySQL, "SET autocommit = 1", "SET is not for handlers"},
		{MySQL, "truncate a", "TRUNCATE is not for handlers: the database commits"},
		{MySQL, "CREATE TABLE a (b int)", "put it into the setup file"},
		{MySQL, "/*!COMMIT*/", "comments that are executed"},
		{MySQL, "/*M!100100 COMMIT*/", "comments that are executed"},
		{MySQL, "/*+ x */", "there is no statement"},
	} {
		if _, err := Parse(c.dialect, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestDecimalsAreMarkedForMySQL(t *testing.T) {
	s, err := Parse(MySQL, "UPDATE a SET b = b + :c, d = :e WHERE f = :c")
	if err != nil {
		t.Fatal(err)
	}
	const want = "UPDATE a SET b = b + CAST(? AS DECIMAL(65, 2)), d = ? WHERE f = CAST(? AS DECIMAL(65, 0))"
	if got := s.Decimals([]int{2, -1, 0}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"SELECT :a", "/*", "'", "--", "[", ";;", "a::b", ":é", "$a$", "e'\\'", "#", "/*+*/"} {
		f.Add(s, 0)
		f.Add(s, 1)
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, text string, dialect int) {
		d := Dialect(uint(dialect) % 3)
		s, err := Parse(d, text)
		if err != nil {
			return
		}
		mark := "?"
		if d == Postgres {
			mark = "$"
		}
		if strings.Count(s.Text, mark) < len(s.Args) {
			t.Errorf("%q: %d parameters and fewer places in %q", text, len(s.Args), s.Text)
		}
	})
}
