// Package jsonpath finds one value in a JSON document by a path such as $.order.lines[0].sku,
// without decoding the rest and without changing a byte of it.
package jsonpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Path is a parsed path.
type Path struct {
	text  string
	steps []step
}

type step struct {
	name  string
	index int // used where name is not
	array bool
}

// Parse reads a path: $, then any number of .name, ['any name'] and [index].
func Parse(text string) (Path, error) {
	p := Path{text: text}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return p, fmt.Errorf("JSON path %q must start with $", text)
	}
	for rest != "" {
		s, after, err := parseStep(rest)
		if err != nil {
			return p, fmt.Errorf("JSON path %q: %w", text, err)
		}
		p.steps, rest = append(p.steps, s), after
	}
	return p, nil
}

func parseStep(s string) (step, string, error) {
	if name, ok := strings.CutPrefix(s, "."); ok {
		end := strings.IndexAny(name, ".[")
		if end < 0 {
			end = len(name)
		}
		if end == 0 {
			return step{}, "", errors.New("a name is missing after '.'")
		}
		return step{name: name[:end]}, name[end:], nil
	}
	if quoted, ok := strings.CutPrefix(s, "['"); ok {
		name, after, ok := strings.Cut(quoted, "']")
		if !ok {
			return step{}, "", errors.New("[' is not closed by ']")
		}
		return step{name: name}, after, nil
	}
	if number, ok := strings.CutPrefix(s, "["); ok {
		digits, after, ok := strings.Cut(number, "]")
		n, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil {
			return step{}, "", fmt.Errorf("%q is not an index like [0]", s)
		}
		return step{index: int(n), array: true}, after, nil
	}
	return step{}, "", fmt.Errorf("%q is neither .name nor [index]", s)
}

// MustParse is Parse that panics.
func MustParse(text string) Path {
	p, err := Parse(text)
	if err != nil {
		panic("onceward: " + err.Error())
	}
	return p
}

func (p Path) String() string { return p.text }

// Errors of Find.
var (
	ErrNotJSON = errors.New("the body is not JSON")
	ErrMissing = errors.New("nothing there")
)

// Value is a JSON value as it stands in the document.
type Value []byte

// Find returns the value at the path: [ErrNotJSON] if doc is not JSON, [ErrMissing] if it has nothing
// there. Of repeated names in an object the last counts.
func (p Path) Find(doc []byte) (Value, error) {
	if !json.Valid(doc) {
		return nil, ErrNotJSON
	}
	v, err := p.FindValid(doc)
	return v, err
}

// FindValid is Find in a document that is known to be JSON.
func (p Path) FindValid(doc []byte) (Value, error) {
	i := skipSpace(doc, 0)
	for _, s := range p.steps {
		var ok bool
		if s.array {
			i, ok = element(doc, i, s.index)
		} else {
			i, ok = member(doc, i, s.name)
		}
		if !ok {
			return nil, fmt.Errorf("%s: %w", p.text, ErrMissing)
		}
	}
	return Value(doc[i:skipValue(doc, i)]), nil
}

// member returns where the value of the named member of the object at i starts.
func member(doc []byte, i int, name string) (int, bool) {
	if doc[i] != '{' {
		return 0, false
	}
	found := -1
	for i = skipSpace(doc, i+1); doc[i] != '}'; {
		end := skipValue(doc, i)
		same := nameIs(doc[i:end], name)
		i = skipSpace(doc, skipSpace(doc, end)+1) // the colon
		if same {
			found = i
		}
		if i = skipSpace(doc, skipValue(doc, i)); doc[i] == ',' {
			i = skipSpace(doc, i+1)
		}
	}
	return found, found >= 0
}

func nameIs(quoted []byte, name string) bool {
	if string(quoted[1:len(quoted)-1]) == name {
		return !strings.Contains(name, `\`)
	}
	if !strings.Contains(string(quoted), `\`) {
		return false
	}
	s, err := unquote(quoted)
	return err == nil && s == name
}

func element(doc []byte, i, index int) (int, bool) {
	if doc[i] != '[' {
		return 0, false
	}
	i = skipSpace(doc, i+1)
	for n := 0; doc[i] != ']'; n++ {
		if n == index {
			return i, true
		}
		if i = skipSpace(doc, skipValue(doc, i)); doc[i] == ',' {
			i = skipSpace(doc, i+1)
		}
	}
	return 0, false
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value that starts at i ends.
func skipValue(doc []byte, i int) int {
	depth := 0
	for i < len(doc) {
		switch doc[i] {
		case '"':
			i = skipString(doc, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			i++
		default: // number, true, false, null
			for i < len(doc) && !strings.ContainsRune("{}[],: \n\t\r\"", rune(doc[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func skipString(doc []byte, i int) int {
	for i++; doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// IsString reports whether the value is a string.
func (v Value) IsString() bool { return v[0] == '"' }

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v[0] == 'n' }

// IsNumber reports whether the value is a number.
func (v Value) IsNumber() bool { return v[0] == '-' || '0' <= v[0] && v[0] <= '9' }

// Text is a string's content or a number as it is written; anything else is an error. Bytes that are
// not valid UTF-8 are kept.
func (v Value) Text() (string, error) {
	switch {
	case v.IsString():
		return unquote(v)
	case v.IsNumber():
		return string(v), nil
	}
	return "", fmt.Errorf("%.20s is neither a string nor a number", string(v))
}

// unquote decodes a JSON string. Unlike encoding/json it keeps invalid UTF-8, and refuses half of a
// surrogate pair, for both would make one text of two.
func unquote(v []byte) (string, error) {
	v = v[1 : len(v)-1]
	if !strings.Contains(string(v), `\`) {
		return string(v), nil
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' {
			out = append(out, v[i])
			continue
		}
		i++
		if at := strings.IndexByte(`"\/bfnrt`, v[i]); at >= 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[at])
			continue
		}
		r, n := decodeU(v[i+1:])
		if n == 0 {
			return "", errors.New("the string holds half of a surrogate pair")
		}
		out = utf8.AppendRune(out, r)
		i += n
	}
	return string(out), nil
}

// decodeU decodes the digits after \u, and a second \u if the first is half of a pair. It returns
// how many bytes it took, 0 if the pair is incomplete.
func decodeU(v []byte) (rune, int) {
	hi, _ := strconv.ParseUint(string(v[:4]), 16, 16)
	if hi < 0xD800 || hi > 0xDFFF {
		return rune(hi), 4
	}
	if hi > 0xDBFF || len(v) < 10 || v[4] != '\\' || v[5] != 'u' {
		return 0, 0
	}
	lo, _ := strconv.ParseUint(string(v[6:10]), 16, 16)
	if lo < 0xDC00 || lo > 0xDFFF {
		return 0, 0
	}
	return rune((hi-0xD800)<<10+(lo-0xDC00)) + 0x10000, 10
}
