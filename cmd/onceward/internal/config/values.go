package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/jsonpath"
)

// Readers of single values. Each returns a function for node.each.

func stringTo(dst *string) func(*node) {
	return func(n *node) {
		if s, ok := n.text(); ok {
			if s == "" {
				n.faultf("a value is missing")
			}
			*dst = s
		}
	}
}

func intTo(dst *int, least, most int) func(*node) {
	return func(n *node) {
		s, ok := n.text()
		if !ok {
			return
		}
		i, err := strconv.Atoi(s)
		if err != nil || i < least || i > most {
			n.faultf("%s is not a whole number from %d to %d", strconv.Quote(s), least, most)
			return
		}
		*dst = i
	}
}

func boolTo(dst *bool) func(*node) {
	return func(n *node) {
		switch s, ok := n.text(); {
		case !ok:
		case s == "true":
			*dst = true
		case s == "false":
			*dst = false
		default:
			n.faultf("%s is neither true nor false", strconv.Quote(s))
		}
	}
}

// choiceTo takes one of several words.
func choiceTo(dst *string, words ...string) func(*node) {
	return func(n *node) {
		s, ok := n.text()
		if !ok {
			return
		}
		if slices.Contains(words, s) {
			*dst = s
			return
		}
		n.faultf("%s is none of %s", strconv.Quote(s), strings.Join(words, ", "))
	}
}

func durationTo(dst *time.Duration) func(*node) {
	return func(n *node) {
		s, ok := n.text()
		if !ok {
			return
		}
		d, err := ParseDuration(s)
		if err != nil {
			n.faultf("%v", err)
			return
		}
		*dst = d
	}
}

// retentionTo is durationTo that knows "forever".
func retentionTo(dst *time.Duration) func(*node) {
	return func(n *node) {
		if s, ok := n.text(); ok && s == "forever" {
			*dst = onceward.Forever
			return
		}
		durationTo(dst)(n)
	}
}

// ParseDuration reads a positive duration: 90s, 1h30m, 30d.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%s is not a duration like 90s, 720h or 30d", strconv.Quote(s))
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n == 0 {
			return 0, bad
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, bad
	}
	return d, nil
}

// attemptsTo takes a count or "unlimited".
func attemptsTo(dst *int) func(*node) {
	return func(n *node) {
		if s, ok := n.text(); ok && s == "unlimited" {
			*dst = onceward.Unlimited
			return
		}
		intTo(dst, 1, 1_000_000)(n)
	}
}

// pathTo takes a JSON path.
func pathTo(dst **jsonpath.Path) func(*node) {
	return func(n *node) {
		s, ok := n.text()
		if !ok {
			return
		}
		p, err := jsonpath.Parse(s)
		if err != nil {
			n.faultf("%v", err)
			return
		}
		*dst = &p
	}
}

// pick reads a place in a message: a JSON path, header:NAME, or else a constant text.
func pick(n *node) (Pick, bool) {
	s, ok := n.text()
	if !ok {
		return Pick{}, false
	}
	if s == "" {
		n.faultf("a value is missing")
		return Pick{}, false
	}
	if name, is := strings.CutPrefix(s, "header:"); is {
		if name == "" {
			n.faultf("the header's name is missing")
			return Pick{}, false
		}
		return Pick{Header: name}, true
	}
	if strings.HasPrefix(s, "$") {
		p, err := jsonpath.Parse(s)
		if err != nil {
			n.faultf("%v", err)
			return Pick{}, false
		}
		return Pick{Path: &p}, true
	}
	return Pick{Constant: s}, true
}

// ParseID reads what id takes in a config file, given as one value or as the parts of a list.
func ParseID(values []string) (ID, error) {
	d := &document{env: func(string) (string, bool) { return "", false }}
	var k Consumer
	switch len(values) {
	case 0:
		return ID{}, errors.New("a value is missing")
	case 1:
		k.readID(d.scalar(values[0]))
	default:
		varies := false
		for _, v := range values {
			p, ok := pick(d.scalar(v))
			k.ID.Parts = append(k.ID.Parts, p)
			varies = varies || ok && p.Constant == ""
		}
		if !varies && len(d.faults) == 0 {
			return ID{}, errors.New("no part is a JSON path, so every message would have the same id")
		}
	}
	if len(d.faults) > 0 {
		return ID{}, errors.New(d.faults[0].What)
	}
	return k.ID, nil
}

// scalar is a value that stands in no file.
func (d *document) scalar(text string) *node {
	return &node{doc: d, ast: ast.String(token.New(text, text, &token.Position{}))}
}
