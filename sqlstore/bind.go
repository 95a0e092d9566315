package sqlstore

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// list is an argument that stands for several values, each an integer or bytes.
type list []any

// table is an argument that stands for several rows of such values.
type table [][]any

// A binder makes a statement of a dialect's file, and its arguments, what drivers take. In the file '?'
// is a single value. This is the only place that knows how placeholders look.
type binder func(stmt string, args []any) (string, []any)

// bindMarks writes one '?' per value: {list} is a list, {rows (…)} a table, with what one row is.
func bindMarks(stmt string, args []any) (string, []any) {
	var out []any
	for _, a := range args {
		switch a := a.(type) {
		case list:
			stmt = strings.Replace(stmt, "{list}", repeat("?", len(a)), 1)
			out = append(out, a...)
		case table:
			before, row, after := cutRows(stmt)
			stmt = before + repeat(row, len(a)) + after
			for _, r := range a {
				out = append(out, r...)
			}
		default:
			out = append(out, a)
		}
	}
	return stmt, out
}

// bindLiterals is bindMarks, but writes lists and tables out as literals, for a statement without
// arguments takes one round trip where another takes three. Only digits and hexadecimal ones are
// written, so nothing can be smuggled in.
func bindLiterals(stmt string, args []any) (string, []any) {
	var out []any
	for _, a := range args {
		switch a := a.(type) {
		case list:
			vs := make([]string, len(a))
			for i, v := range a {
				vs[i] = literal(v)
			}
			stmt = strings.Replace(stmt, "{list}", strings.Join(vs, ","), 1)
		case table:
			before, row, after := cutRows(stmt)
			parts := strings.Split(row, "?")
			var b strings.Builder
			b.WriteString(before)
			for i, r := range a {
				if i > 0 {
					b.WriteByte(',')
				}
				for k, v := range r {
					b.WriteString(parts[k])
					b.WriteString(literal(v))
				}
				b.WriteString(parts[len(r)])
			}
			b.WriteString(after)
			stmt = b.String()
		default:
			out = append(out, a)
		}
	}
	return stmt, out
}

// bindNumbers numbers the placeholders. A list is one argument, the text of an array; a table is one
// array per column. So a statement has the same text, and the same plan, for any number of values.
func bindNumbers(stmt string, args []any) (string, []any) {
	var out []any
	for _, a := range args {
		switch a := a.(type) {
		case list:
			out = append(out, array(len(a), func(i int) any { return a[i] }))
		case table:
			for col := range a[0] {
				out = append(out, array(len(a), func(i int) any { return a[i][col] }))
			}
		default:
			out = append(out, a)
		}
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(stmt, "?")
		b.WriteString(before)
		if !found {
			return b.String(), out
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		stmt = after
	}
}

func cutRows(stmt string) (before, row, after string) {
	before, rest, _ := strings.Cut(stmt, "{rows ")
	row, after, _ = strings.Cut(rest, "}")
	return before, row, after
}

func repeat(s string, n int) string {
	return strings.Repeat(s+",", n-1) + s
}

func literal(v any) string {
	if b, ok := v.([]byte); ok {
		return "x'" + hex.EncodeToString(b) + "'"
	}
	return integer(v)
}

func array(n int, at func(int) any) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if v, ok := at(i).([]byte); ok {
			b.WriteString(`"\\x`)
			b.WriteString(hex.EncodeToString(v))
			b.WriteByte('"')
		} else {
			b.WriteString(integer(at(i)))
		}
	}
	b.WriteByte('}')
	return b.String()
}

func integer(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	}
	panic(fmt.Sprintf("onceward: %T in a list", v)) // a mistake of this package, which any test finds
}
