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
		s, err := Parse(text)
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
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"SELECT :a", "/*", "'", "--", "[", ";;", "a::b", ":é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err == nil && strings.Count(s.Text, "?") < len(s.Args) {
			t.Errorf("%q: %d parameters and fewer places in %q", text, len(s.Args), s.Text)
		}
	})
}
