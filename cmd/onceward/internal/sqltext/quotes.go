package sqltext

import (
	"errors"
	"fmt"
	"strings"
)

var errOpenComment = errors.New("a comment is not closed by */")

// comment returns how long the comment is that comes next, or 0. kept: it means something to the
// database.
func (p *parser) comment() (n int, kept bool, err error) {
	rest := p.src[p.pos:]
	if p.lineComment(rest) {
		if n := strings.IndexByte(rest, '\n'); n >= 0 {
			return n, false, nil
		}
		return len(rest), false, nil
	}
	if !strings.HasPrefix(rest, "/*") {
		return 0, false, nil
	}
	if p.dialect == Postgres {
		n, err := nested(rest)
		return n, false, err
	}
	if p.dialect == MySQL && (strings.HasPrefix(rest, "/*!") || strings.HasPrefix(rest, "/*M!")) {
		return 0, false, errors.New("comments that are executed, /*! … */, are not for handlers; write what they hold as it is")
	}
	if n = strings.Index(rest[2:], "*/"); n < 0 {
		return 0, false, errOpenComment
	}
	return n + 4, p.dialect == MySQL && rest[2] == '+', nil
}

// lineComment reports whether s begins with a comment that ends with the line. Two minus signs are
// operators for MySQL, unless a space follows.
func (p *parser) lineComment(s string) bool {
	if p.dialect == MySQL {
		return s[0] == '#' || strings.HasPrefix(s, "--") && (len(s) == 2 || s[2] <= ' ')
	}
	return strings.HasPrefix(s, "--")
}

// nested returns the length of a comment that may hold others.
func nested(s string) (int, error) {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, errOpenComment
}

// text copies a quoted text or name. done is false where c, in this dialect, opens none.
func (p *parser) text(c byte) (done bool, err error) {
	switch c {
	case '\'':
		return true, p.quoted(c, p.dialect == MySQL || p.dialect == Postgres && p.escapes())
	case '"':
		return true, p.quoted(c, p.dialect == MySQL)
	case '`':
		if p.dialect == Postgres {
			return false, nil // a character of operators
		}
		return true, p.quoted(c, false)
	case '[':
		if p.dialect != SQLite {
			return false, nil
		}
		return true, p.quoted(']', false)
	}
	return p.dollars()
}

// escapes reports whether the quote that comes next follows an E alone, as in E'\n'.
func (p *parser) escapes() bool {
	if p.pos == 0 || p.src[p.pos-1]|0x20 != 'e' {
		return false
	}
	before := p.src[:p.pos-1]
	return before == "" || before[len(before)-1] != '$' && identifier(before[len(before)-1:]) == ""
}

// dollars copies a text like $tag$…$tag$, in which nothing is special.
func (p *parser) dollars() (bool, error) {
	if p.dialect != Postgres {
		return false, nil
	}
	rest := p.src[p.pos:]
	tag := identifier(rest[1:])
	if tag != "" && '0' <= tag[0] && tag[0] <= '9' || !strings.HasPrefix(rest[1+len(tag):], "$") {
		return false, nil
	}
	quote := rest[:len(tag)+2]
	n := strings.Index(rest[len(quote):], quote)
	if n < 0 {
		return true, fmt.Errorf("%s is not closed", quote)
	}
	p.copy(n + 2*len(quote))
	return true, nil
}

// quoted copies a text in quotes; the quote itself is written twice within it or, with backslash, after
// a backslash.
func (p *parser) quoted(end byte, backslash bool) error {
	open := p.src[p.pos]
	for i := p.pos + 1; i < len(p.src); i++ {
		if backslash && p.src[i] == '\\' {
			i++
			continue
		}
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
