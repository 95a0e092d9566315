// Package sqltext reads just enough of an SQL text to find its named parameters, and to refuse what
// a handler must not run. It does not parse SQL: the database does, when the statement is prepared.
package sqltext

import (
	"errors"
	"fmt"
	"strings"
)

// Statement is one SQL statement whose parameters are numbered by their place.
type Statement struct {
	Text string   // with ? in place of each :name
	Args []string // the name behind each ?, in order; a name used twice is here twice
	Verb string   // the first word, in capitals
}

// forbidden are first words of statements that a handler must not run, since the transaction is not
// its own.
var forbidden = map[string]string{
	"BEGIN": "", "COMMIT": "", "END": "", "ROLLBACK": "", "SAVEPOINT": "", "RELEASE": "",
	"START": "", "ABORT": "",
	"PRAGMA": "put it into the setup file", "ATTACH": "put it into the setup file",
	"DETACH": "put it into the setup file", "VACUUM": "run it by hand, while no consumer runs",
}

// Parse reads one statement. A text with none or several, with parameters other than :name, or that
// would begin or end a transaction is an error.
func Parse(text string) (*Statement, error) {
	p := parser{src: text}
	for p.pos < len(p.src) {
		if err := p.token(); err != nil {
			return nil, err
		}
	}
	if p.first == "" {
		return nil, errors.New("there is no statement here")
	}
	verb := strings.ToUpper(p.first)
	if cure, bad := forbidden[verb]; bad {
		if cure == "" {
			cure = "the transaction is begun and committed for the handler, together with the record that the message is done"
		}
		return nil, fmt.Errorf("%s is not for handlers: %s", verb, cure)
	}
	return &Statement{Text: strings.TrimSpace(p.out.String()), Args: p.args, Verb: verb}, nil
}

// Writes reports whether the statement says how many rows it has changed.
func (s *Statement) Writes() bool {
	switch s.Verb {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "MERGE":
		return true
	}
	return false
}

type parser struct {
	src   string
	pos   int
	out   strings.Builder
	args  []string
	first string // the first word
	ended bool   // a semicolon was seen
}

// token copies the next token to out.
func (p *parser) token() error {
	c := p.src[p.pos]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f':
		p.copy(1)
		return nil
	case strings.HasPrefix(p.src[p.pos:], "--"):
		n := strings.IndexByte(p.src[p.pos:], '\n')
		if n < 0 {
			n = len(p.src) - p.pos
		}
		p.skip(n)
		return nil
	case strings.HasPrefix(p.src[p.pos:], "/*"):
		n := strings.Index(p.src[p.pos+2:], "*/")
		if n < 0 {
			return errors.New("a comment is not closed by */")
		}
		p.skip(n + 4)
		return nil
	case c == ';':
		p.ended = true
		p.pos++
		return nil
	}
	if p.ended {
		return errors.New("there are several statements here; give each a run of its own, in the order in which they are to run")
	}
	return p.word(c)
}

// word copies a token that is neither space, comment nor semicolon.
func (p *parser) word(c byte) error {
	switch {
	case c == '\'' || c == '"' || c == '`':
		return p.quoted(c)
	case c == '[':
		return p.quoted(']')
	case c == ':' && strings.HasPrefix(p.src[p.pos:], "::"):
		p.copy(2) // a cast
	case c == ':':
		return p.parameter()
	case c == '?' || c == '@' || c == '$':
		return fmt.Errorf("parameters are written :name, not %c%s", c, identifier(p.src[p.pos+1:]))
	case identifier(p.src[p.pos:]) != "":
		w := identifier(p.src[p.pos:])
		if p.first == "" {
			p.first = w
		}
		p.copy(len(w))
	default:
		if p.first == "" {
			p.first = string(c)
		}
		p.copy(1)
	}
	return nil
}

func (p *parser) parameter() error {
	name := identifier(p.src[p.pos+1:])
	if name == "" {
		return errors.New("a parameter's name is missing after ':'")
	}
	p.args = append(p.args, name)
	p.out.WriteByte('?')
	p.pos += 1 + len(name)
	return nil
}

// quoted copies a text in quotes; the quote itself is written twice within it.
func (p *parser) quoted(end byte) error {
	open := p.src[p.pos]
	for i := p.pos + 1; i < len(p.src); i++ {
		if p.src[i] != end {
			continue
		}
		if end != ']' && i+1 < len(p.src) && p.src[i+1] == end {
			i++
			continue
		}
		p.copy(i + 1 - p.pos)
		return nil
	}
	return fmt.Errorf("%c is not closed", open)
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
