// Package sqltext reads just enough of an SQL text to find its named parameters, and to refuse what
// a handler must not run. It does not parse SQL: the database does, when the statement is prepared.
package sqltext

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dialect says whose rules for quotes and comments a text follows, and how its parameters are marked.
type Dialect int

// The dialects.
const (
	SQLite Dialect = iota
	Postgres
	MySQL // and MariaDB
)

// Statement is one SQL statement whose parameters are marked as its dialect does it.
type Statement struct {
	// Text has $1, $2 … in place of each :name for Postgres, and ? for others.
	Text string
	// Args are the names behind the marks, in order. For Postgres a name used twice has one mark; for
	// others it is here twice.
	Args []string
	Verb string // the first word, in capitals

	parts []string // the text between the marks
}

// Parse reads one statement. A text with none or several, with parameters other than :name, or that
// would begin or end a transaction is an error.
func Parse(d Dialect, text string) (*Statement, error) {
	p := parser{dialect: d, src: text}
	for p.pos < len(p.src) {
		if err := p.token(); err != nil {
			return nil, err
		}
	}
	if len(p.words) == 0 {
		return nil, errors.New("there is no statement here")
	}
	if err := refuse(d, p.words); err != nil {
		return nil, err
	}
	p.parts = append(p.parts, p.out.String())
	s := &Statement{Verb: p.words[0], parts: trim(p.parts)}
	s.mark(d, p.names)
	return s, nil
}

// trim removes space around the whole.
func trim(parts []string) []string {
	parts[0] = strings.TrimLeft(parts[0], " \t\r\n\f")
	last := len(parts) - 1
	parts[last] = strings.TrimRight(parts[last], " \t\r\n\f")
	return parts
}

// mark fills in Text and Args.
func (s *Statement) mark(d Dialect, names []string) {
	var b strings.Builder
	for i, part := range s.parts {
		b.WriteString(part)
		if i == len(names) {
			break
		}
		if d != Postgres {
			b.WriteByte('?')
			s.Args = append(s.Args, names[i])
			continue
		}
		n := slices.Index(s.Args, names[i])
		if n < 0 {
			n = len(s.Args)
			s.Args = append(s.Args, names[i])
		}
		b.WriteString("$" + strconv.Itoa(n+1))
	}
	s.Text = b.String()
}

// Decimals is Text for MySQL with marks that stand for exact decimal numbers, as places[i] says of
// the i-th: with so many digits after the point, or of no declared type if it is negative. For MySQL
// a text in arithmetic is a binary floating-point number.
func (s *Statement) Decimals(places []int) string {
	var b strings.Builder
	for i, part := range s.parts {
		b.WriteString(part)
		switch {
		case i == len(places):
		case places[i] < 0:
			b.WriteByte('?')
		default:
			fmt.Fprintf(&b, "CAST(? AS DECIMAL(%d, %d))", MostDigits, places[i])
		}
	}
	return b.String()
}

// MostDigits and MostPlaces are how many digits a decimal number of MySQL can have, and how many of
// them after the point.
const (
	MostDigits = 65
	MostPlaces = 30
)

// Writes reports whether the statement says how many rows it has changed.
func (s *Statement) Writes() bool {
	switch s.Verb {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "MERGE":
		return true
	}
	return false
}

type parser struct {
	dialect Dialect
	src     string
	pos     int
	out     strings.Builder // since the last parameter
	parts   []string        // before
	names   []string        // of the parameters
	words   []string        // the first two, in capitals
	ended   bool            // a semicolon was seen
}

// token copies the next token to out.
func (p *parser) token() error {
	c := p.src[p.pos]
	switch n, kept, err := p.comment(); {
	case err != nil:
		return err
	case kept:
		p.copy(n)
		return nil
	case n > 0:
		p.skip(n)
		return nil
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
		p.copy(1)
		return nil
	case c == ';':
		p.ended = true
		p.pos++
		return nil
	}
	if p.ended {
		return errors.New("there are several statements here; give each a run of its own, in the order in which they are to run")
	}
	switch c {
	case '\'', '"', '`', '[', '$':
		if done, err := p.text(c); done || err != nil {
			return err
		}
	}
	return p.word(c)
}

// word copies a token that is neither space, comment, quoted text nor semicolon.
func (p *parser) word(c byte) error {
	rest := p.src[p.pos:]
	w := identifier(rest)
	switch {
	case strings.HasPrefix(rest, "::"), strings.HasPrefix(rest, ":="):
		p.copy(2) // a cast, a named argument
	case c == ':':
		return p.parameter()
	case c == '$', c == '?' && p.dialect != Postgres, c == '@' && p.dialect != Postgres: // operators of Postgres
		return fmt.Errorf("parameters are written :name, not %c%s", c, identifier(rest[1:]))
	case w != "":
		p.noteWord(strings.ToUpper(w))
		p.copy(len(w))
		for p.pos < len(p.src) && p.src[p.pos] == '$' && p.dialect != SQLite { // part of the name
			p.copy(1 + len(identifier(p.src[p.pos+1:])))
		}
	default:
		p.noteWord(string(c))
		p.copy(1)
	}
	return nil
}

func (p *parser) noteWord(w string) {
	if len(p.words) < 2 {
		p.words = append(p.words, w)
	}
}

func (p *parser) parameter() error {
	name := identifier(p.src[p.pos+1:])
	if p.dialect == Postgres && (name == "" || '0' <= name[0] && name[0] <= '9') {
		p.copy(1) // the bounds of a slice of an array
		return nil
	}
	if name == "" {
		return errors.New("a parameter's name is missing after ':'")
	}
	p.names = append(p.names, name)
	p.parts = append(p.parts, p.out.String())
	p.out.Reset()
	p.pos += 1 + len(name)
	return nil
}

func (p *parser) copy(n int) {
	p.out.WriteString(p.src[p.pos : p.pos+n])
	p.pos += n
}

// skip replaces a comment by a space.
func (p *parser) skip(n int) {
	p.out.WriteByte(' ')
	p.pos += n
}

// identifier returns the identifier that s starts with, or "".
func identifier(s string) string {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 0x80 || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (c < '0' || c > '9') {
			return s[:i]
		}
	}
	return s
}
