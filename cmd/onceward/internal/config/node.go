package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Error is one fault in a config file. Its text names file, line and field.
type Error struct {
	File  string
	Line  int    // 0 if the fault has no line
	Field string // such as consumers[0].guarantee; may be empty
	What  string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	return b.String() + e.What
}

// document is a file that is being read; faults are collected, so that a user sees all at once.
type document struct {
	file    string
	env     func(string) (string, bool)
	anchors map[string]ast.Node
	faults  []*Error
}

// node is a value of the document together with its name.
type node struct {
	doc  *document
	line int
	path string
	ast  ast.Node
}

// parse reads the text of a file; its faults, if any, are in the document.
func parse(file string, text []byte) (*document, *node) {
	d := &document{file: file, env: os.LookupEnv, anchors: map[string]ast.Node{}}
	f, err := parser.ParseBytes(text, 0)
	if err != nil {
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			d.faultf(syntax.Token.Position.Line, "", "%s", syntax.Message)
		} else {
			d.faultf(0, "", "%v", err)
		}
		return d, nil
	}
	docs := slices.DeleteFunc(f.Docs, func(x *ast.DocumentNode) bool { return x.Body == nil })
	if len(docs) != 1 {
		d.faultf(0, "", "one YAML document is expected, and there are %d", len(docs))
		return d, nil
	}
	for _, a := range ast.Filter(ast.AnchorType, docs[0].Body) {
		if a, ok := a.(*ast.AnchorNode); ok {
			d.anchors[a.Name.String()] = a.Value
		}
	}
	return d, d.node(docs[0].Body, "", 1)
}

func (d *document) faultf(line int, field, format string, args ...any) {
	d.faults = append(d.faults, &Error{File: d.file, Line: line, Field: field, What: fmt.Sprintf(format, args...)})
}

// err is nil, or all faults, one a line, in the order of their lines.
func (d *document) err() error {
	last := func(f *Error) int { // what has no line comes last
		if f.Line == 0 {
			return math.MaxInt
		}
		return f.Line
	}
	slices.SortStableFunc(d.faults, func(a, b *Error) int { return cmp.Compare(last(a), last(b)) })
	var errs []error
	for _, f := range d.faults {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// node wraps a value, following anchors, aliases and tags.
func (d *document) node(a ast.Node, path string, line int) *node {
	for range 16 {
		switch v := a.(type) {
		case *ast.AnchorNode:
			a = v.Value
		case *ast.AliasNode:
			a = d.anchors[v.Value.String()]
		case *ast.TagNode:
			a = v.Value
		case nil:
			return &node{d, line, path, ast.Null(nil)}
		default:
			return &node{d, line, path, a}
		}
	}
	d.faultf(line, path, "too many aliases of aliases")
	return &node{d, line, path, ast.Null(nil)}
}

func (n *node) faultf(format string, args ...any) { n.doc.faultf(n.line, n.path, format, args...) }

func (n *node) null() bool {
	_, ok := n.ast.(*ast.NullNode)
	return ok
}

// field is one entry of a mapping.
type field struct {
	name  string
	value *node
}

// mapping returns the entries of a mapping, and a fault for anything else.
func (n *node) mapping() []field {
	var pairs []*ast.MappingValueNode
	switch v := n.ast.(type) {
	case *ast.MappingNode:
		pairs = v.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{v}
	default:
		n.faultf("fields are expected here, as in \"name: value\"")
		return nil
	}
	var fs []field
	for _, p := range pairs {
		name := p.Key.String()
		if s, ok := p.Key.(*ast.StringNode); ok {
			name = s.Value
		}
		path := name
		if n.path != "" {
			path = n.path + "." + name
		}
		fs = append(fs, field{name, n.doc.node(p.Value, path, p.Key.GetToken().Position.Line)})
	}
	return fs
}

// each hands the entries of a mapping to the readers named like them. Others are faults.
func (n *node) each(readers map[string]func(*node)) {
	for _, f := range n.mapping() {
		read, ok := readers[f.name]
		switch {
		case !ok:
			f.value.faultf("unknown field%s", hint(f.name, readers))
		case f.value.null():
			f.value.faultf("a value is missing")
		default:
			read(f.value)
		}
	}
}

// hint names the known field that was probably meant, or all of them.
func hint(name string, readers map[string]func(*node)) string {
	var known []string
	for k := range readers {
		known = append(known, k)
	}
	slices.Sort(known)
	for _, k := range known {
		if near(strings.ToLower(name), k) {
			return fmt.Sprintf("; did you mean %q?", k)
		}
	}
	return "; known here are " + strings.Join(known, ", ")
}

// near reports whether one insertion, deletion, replacement or swap at most makes b of a.
func near(a, b string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	swapped := len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
	return swapped || len(a) <= 1 && len(b) <= 1
}

// list returns the values of a sequence, and a fault for anything else.
func (n *node) list() []*node {
	seq, ok := n.ast.(*ast.SequenceNode)
	if !ok {
		n.faultf("a list is expected here, as in \"- value\"")
		return nil
	}
	var ns []*node
	for i, v := range seq.Values {
		line := n.line
		if v != nil && v.GetToken() != nil {
			line = v.GetToken().Position.Line
		}
		if m, ok := v.(*ast.MappingNode); ok && len(m.Values) > 0 {
			line = m.Values[0].Key.GetToken().Position.Line
		}
		ns = append(ns, n.doc.node(v, fmt.Sprintf("%s[%d]", n.path, i), line))
	}
	return ns
}

func (n *node) isMapping() bool {
	switch n.ast.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

func (n *node) isList() bool {
	_, ok := n.ast.(*ast.SequenceNode)
	return ok
}

// text returns a scalar as it is written, with ${NAME} expanded.
func (n *node) text() (string, bool) {
	switch v := n.ast.(type) {
	case *ast.StringNode:
		return n.expand(v.Value)
	case *ast.LiteralNode:
		return n.expand(v.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.ast.GetToken().Value, true
	}
	n.faultf("a single value is expected here")
	return "", false
}

// isText reports whether the scalar is text, as opposed to a number, true, false or null.
func (n *node) isText() bool {
	switch n.ast.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

var variable = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*\})?`)

// expand replaces ${NAME} by the environment's value; $${ stands for ${ itself.
func (n *node) expand(s string) (string, bool) {
	ok := true
	s = variable.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, "$$") {
			return m[1:]
		}
		if m == "${" {
			n.faultf("${ is not followed by a variable's name and }, as in ${NAME}; for ${ itself write $${")
			ok = false
			return m
		}
		name := m[2 : len(m)-1]
		v, set := n.doc.env(name)
		if !set {
			n.faultf("the environment variable %s is not set", name)
			ok = false
		}
		return v
	})
	return s, ok
}
