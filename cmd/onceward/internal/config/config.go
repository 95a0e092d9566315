// Package config reads the program's config file and says what is wrong with it: which file, line
// and field.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/sources"
	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

// Config is a config file that makes sense. Paths in it are absolute, or relative to the working
// directory like the config file's own.
type Config struct {
	File      string
	Store     Store
	Setup     string // path of the SQL file; empty: none
	HTTP      string // address; empty: none
	Consumers []*Consumer

	lines map[string]int // where fields are
}

// Consumer is one entry of consumers.
type Consumer struct {
	Name      string
	Source    Source
	Guarantee string
	ID        ID
	Key       *Pick // nil: the message's own
	Match     []Condition
	Handler   Handler
	Settings  Settings

	index int
}

// The guarantees.
const (
	AtMostOnce      = "at-most-once"
	AtLeastOnce     = "at-least-once"
	EffectivelyOnce = "effectively-once"
)

// Settings are the fields that are passed on as they are; zero means the default.
type Settings struct {
	Attempts                  int
	BackoffFirst, BackoffMost time.Duration
	Timeout                   time.Duration
	Lanes, MaxBatch           int
	KeepOrder                 bool
	Mismatch                  string
	Retention                 time.Duration
}

// SourceKind says what kind of source a consumer reads.
type SourceKind string

// The kinds of source.
const (
	File  SourceKind = "file"
	Stdin SourceKind = "stdin"
	Queue SourceKind = "queue"
)

// Source is what a consumer reads.
type Source struct {
	Kind SourceKind
	Name string // of the queue, or the file as configured
	Path string // of the file
}

// Finite reports whether the source ends by itself.
func (s Source) Finite() bool { return s.Kind != Queue }

func (s Source) String() string {
	if s.Kind == Stdin {
		return "stdin"
	}
	return string(s.Kind) + ":" + s.Name
}

// ID says where a message's id is. The zero value is the broker's message id.
type ID struct {
	Content bool
	Single  *Pick
	Parts   []Pick // a list
}

// IsZero reports whether the broker's message id is meant.
func (i ID) IsZero() bool { return !i.Content && i.Single == nil && i.Parts == nil }

// HasHeader reports whether the id, or a part of it, is a header.
func (i ID) HasHeader() bool {
	isHeader := func(p Pick) bool { return p.Header != "" }
	return i.Single != nil && isHeader(*i.Single) || slices.ContainsFunc(i.Parts, isHeader)
}

// Pick is a place in a message; exactly one field is set.
type Pick struct {
	Path     *jsonpath.Path
	Header   string
	Constant string
}

// Condition is one entry of match: the value at Path has Text, and is text if Quoted.
type Condition struct {
	Path jsonpath.Path
	Text string
	// Literal: the value is a number, true, false or null; otherwise it is text.
	Literal bool
}

// Handler is what a consumer does with a message.
type Handler struct {
	Statements []Statement
	Params     []Param
	Dialect    sqltext.Dialect
}

// Statement is one entry of handler.sql.
type Statement struct {
	SQL  *sqltext.Statement
	Rows int // how many rows it must affect; negative: any number
	Line int // of run
}

// Param is a named parameter of the statements.
type Param struct {
	Name string
	Path jsonpath.Path
}

// RequireConsumers is an error if the config has none.
func (c *Config) RequireConsumers() error {
	if len(c.Consumers) > 0 {
		return nil
	}
	return c.ErrorAt(1, "consumers", "missing: there is nothing to run")
}

// Place is a field's name and where it is, for texts.
func (c *Config) Place(field string) string {
	if line := c.lines[field]; line > 0 {
		return fmt.Sprintf("%s (%s:%d)", field, c.File, line)
	}
	return fmt.Sprintf("%s (%s)", field, c.File)
}

// Errorf is an error about a field, such as "setup" or "consumers[0].source".
func (c *Config) Errorf(field, format string, args ...any) error {
	return &Error{File: c.File, Line: c.lines[field], Field: field, What: fmt.Sprintf(format, args...)}
}

// ErrorAt is Errorf for a field of a list, whose line the caller knows.
func (c *Config) ErrorAt(line int, field, format string, args ...any) error {
	return &Error{File: c.File, Line: line, Field: field, What: fmt.Sprintf(format, args...)}
}

// Field is the full name of one of a consumer's fields, for [Config.Errorf].
func (c *Consumer) Field(name string) string { return fmt.Sprintf("consumers[%d].%s", c.index, name) }

// Load reads a config file. Its error holds every fault it found, one a line, each an [*Error].
func Load(file string) (*Config, error) { return load(file, false) }

// LoadStore reads only what says where the database is, for commands that need nothing else: they
// work as well where a consumer's file is gone, or a variable is not set.
func LoadStore(file string) (*Config, error) { return load(file, true) }

func load(file string, storeOnly bool) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &Error{File: file, What: "the config file can't be read: " + plain(err)}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, &Error{File: file, What: "the config file is empty"}
	}
	doc, root := parse(file, text)
	c := &Config{File: file, lines: map[string]int{}}
	if root != nil {
		c.read(root, storeOnly)
	}
	return c, doc.err()
}

func (c *Config) read(root *node, storeOnly bool) {
	var stored, consumers bool
	for _, f := range fieldsOf(root) { // first, for it says how statements are read
		if f.name == "store" && !f.value.null() {
			c.readStore(f.value)
		}
	}
	readers := map[string]func(*node){
		"store":     func(*node) { stored = true },
		"setup":     func(n *node) { c.Setup = c.readFile(n) },
		"http":      c.readHTTP,
		"consumers": func(n *node) { consumers = true; c.readConsumers(n) },
		"relays":    func(n *node) { n.faultf("relays are not built in yet") },
	}
	if storeOnly {
		for _, name := range []string{"setup", "http", "consumers", "relays"} {
			readers[name] = func(*node) {}
		}
	}
	root.each(readers)
	if !stored && root.isMapping() {
		root.doc.faultf(1, "store", "missing; add for example \"store: sqlite:onceward.db\"")
	}
	if consumers {
		c.checkTogether(root.doc)
	}
}

// fieldsOf is mapping without a fault for what is none.
func fieldsOf(n *node) []field {
	if !n.isMapping() {
		return nil
	}
	return n.mapping()
}

// at remembers a field's line for later errors.
func (c *Config) at(n *node) { c.lines[n.path] = n.line }

// resolve makes a path relative to the config file's directory.
func (c *Config) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.File), path)
}

// readFile takes the path of a file that must be there.
func (c *Config) readFile(n *node) string {
	c.at(n)
	s, ok := n.text()
	if !ok {
		return ""
	}
	return c.checkFile(n, s)
}

func (c *Config) checkFile(n *node, s string) string {
	path := c.resolve(s)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		n.faultf("%s", sources.NotRegular(path, info)) // opening a pipe would wait for its writer
		return path
	}
	f, err := os.Open(path)
	if err != nil {
		n.faultf("%s: %s", path, plain(err))
		return path
	}
	_ = f.Close()
	return path
}

func (c *Config) readHTTP(n *node) {
	c.at(n)
	s, ok := n.text()
	if !ok {
		return
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		n.faultf("%q is not an address like localhost:8080", s)
		return
	}
	if _, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil { // asks no server
		n.faultf("%q: there is no port %s; ports are 0 to 65535", s, port)
		return
	}
	c.HTTP = s
}

// plain is the reason of an error about a file, without its path.
func plain(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
