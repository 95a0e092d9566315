package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/onceward/onceward/internal/jsonpath"

	"github.com/onceward/onceward/cmd/onceward/internal/sqltext"
)

func (c *Config) readConsumers(n *node) {
	list := n.list()
	if n.isList() && len(list) == 0 {
		n.faultf("there is no consumer")
	}
	for i, item := range list {
		k := &Consumer{index: i, Handler: Handler{Dialect: c.Store.Dialect()}}
		c.Consumers = append(c.Consumers, k)
		c.readConsumer(k, item)
	}
}

func (c *Config) readConsumer(k *Consumer, n *node) {
	readers := map[string]func(*node){
		"name":      stringTo(&k.Name),
		"source":    func(v *node) { c.readSource(k, v) },
		"guarantee": k.readGuarantee,
		"id":        k.readID,
		"key":       k.readKey,
		"match":     k.readMatch,
		"handler":   k.Handler.read,
	}
	k.Settings.readers(readers)
	for name, read := range readers {
		readers[name] = func(v *node) {
			c.at(v)
			read(v)
		}
	}
	c.at(n)
	if n.each(readers); !n.isMapping() {
		return
	}
	seen := map[string]bool{}
	for _, f := range n.mapping() {
		seen[f.name] = true
	}
	for _, name := range []string{"name", "source", "guarantee", "handler"} {
		if !seen[name] {
			n.doc.faultf(n.line, n.path+"."+name, "missing")
		}
	}
	k.check(n, seen)
}

func (s *Settings) readers(into map[string]func(*node)) {
	into["attempts"] = attemptsTo(&s.Attempts)
	into["backoff"] = func(n *node) {
		n.each(map[string]func(*node){"first": durationTo(&s.BackoffFirst), "most": durationTo(&s.BackoffMost)})
	}
	into["timeout"] = durationTo(&s.Timeout)
	into["lanes"] = intTo(&s.Lanes, 1, 64)
	into["max_batch"] = intTo(&s.MaxBatch, 1, 10_000)
	into["keep_order"] = boolTo(&s.KeepOrder)
	into["mismatch"] = choiceTo(&s.Mismatch, "dead", "duplicate")
	into["retention"] = retentionTo(&s.Retention)
}

func (c *Config) readSource(k *Consumer, n *node) {
	s, ok := n.text()
	if !ok {
		return
	}
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "file":
		if rest == "" {
			n.faultf("the file's path is missing, as in file:payments.ndjson")
			return
		}
		k.Source = Source{Kind: File, Name: rest, Path: c.checkFile(n, rest)}
	case "stdin":
		if s != "stdin" {
			n.faultf("stdin takes nothing after it")
		}
		k.Source = Source{Kind: Stdin}
	case "queue":
		k.Source = Source{Kind: Queue, Name: rest}
		if rest == "" || rest == "retries" {
			n.faultf("%q is no queue to read; give it a name of your own, as in queue:payments", s)
		}
	case "amqp", "amqps", "kafka", "nats", "redis", "rediss", "tls":
		n.faultf("%s is not built in yet; use file:PATH, stdin or queue:NAME", redact(s))
	default:
		n.faultf("%s is no source; use file:PATH, stdin or queue:NAME", redact(s))
	}
}

func (k *Consumer) readGuarantee(n *node) {
	if s, ok := n.text(); ok && s == "deduplicated" {
		n.faultf("deduplicated is not built in yet; for SQL use effectively-once, which promises more")
		return
	}
	choiceTo(&k.Guarantee, AtMostOnce, AtLeastOnce, EffectivelyOnce)(n)
}

func (k *Consumer) readID(n *node) {
	if n.isList() {
		k.readParts(n)
		return
	}
	s, ok := n.text()
	switch {
	case !ok:
	case s == "content":
		k.ID.Content = true
	case s == "position":
		n.faultf("position is not built in yet; use a JSON path, or content")
	default:
		p, ok := pick(n)
		if ok && p.Constant != "" {
			n.faultf("%q would give every message the same id; use a JSON path such as $.%s, header:NAME or content", s, s)
			return
		}
		k.ID.Single = &p
	}
}

func (k *Consumer) readParts(n *node) {
	varies := false
	for _, item := range n.list() {
		if p, ok := pick(item); ok {
			k.ID.Parts = append(k.ID.Parts, p)
			varies = varies || p.Constant == ""
		} else {
			varies = true // the fault is known
		}
	}
	if !varies {
		n.faultf("no part is a JSON path or header:NAME, so every message would have the same id")
	}
}

func (k *Consumer) readKey(n *node) {
	p, ok := pick(n)
	if ok && p.Constant != "" {
		n.faultf("%q would give every message the same key; use a JSON path such as $.%s or header:NAME", p.Constant, p.Constant)
		return
	}
	k.Key = &p
}

func (k *Consumer) readMatch(n *node) {
	for _, f := range n.mapping() {
		path, err := jsonpath.Parse(f.name)
		if err != nil {
			f.value.faultf("%v", err)
			continue
		}
		if text, ok := f.value.text(); ok {
			k.Match = append(k.Match, Condition{Path: path, Text: text, Literal: !f.value.isText()})
		}
	}
}

func (h *Handler) read(n *node) {
	var sql, params *node
	n.each(map[string]func(*node){
		"sql":     func(v *node) { sql = v; h.readStatements(v) },
		"params":  func(v *node) { params = v; h.readParams(v) },
		"http":    func(v *node) { v.faultf("http handlers are not built in yet; use sql") },
		"command": func(v *node) { v.faultf("command handlers are not built in yet; use sql") },
	})
	switch {
	case !n.isMapping():
	case sql == nil:
		if !slices.ContainsFunc(n.mapping(), func(f field) bool { return f.name == "http" || f.name == "command" }) {
			n.faultf("sql is missing")
		}
	case sql.isList():
		h.checkParams(sql, params)
	}
}

func (h *Handler) readStatements(n *node) {
	for _, item := range n.list() {
		h.readStatement(item)
	}
	if n.isList() && len(n.list()) == 0 {
		n.faultf("there is no statement")
	}
}

func (h *Handler) readStatement(n *node) {
	s := Statement{Rows: -1}
	ran := false
	n.each(map[string]func(*node){
		"run": func(v *node) {
			ran, s.Line = true, v.line
			text, ok := v.text()
			if !ok {
				return
			}
			parsed, err := sqltext.Parse(h.Dialect, text)
			if err != nil {
				v.faultf("%v", err)
			}
			s.SQL = parsed
		},
		"rows": intTo(&s.Rows, 0, 1<<30),
	})
	switch {
	case !ran && n.isMapping():
		n.faultf("run is missing")
	case s.SQL != nil && s.Rows >= 0 && !s.SQL.Writes():
		n.faultf("rows has a meaning for INSERT, UPDATE and DELETE only, not for %s; remove it", s.SQL.Verb)
	}
	h.Statements = append(h.Statements, s)
}

func (h *Handler) readParams(n *node) {
	for _, f := range n.mapping() {
		var p *jsonpath.Path
		if f.value.null() {
			f.value.faultf("a JSON path is missing, as in $.%s", f.name)
		} else {
			pathTo(&p)(f.value)
		}
		if p == nil {
			p = &jsonpath.Path{}
		}
		h.Params = append(h.Params, Param{Name: f.name, Path: *p})
	}
}

// checkParams compares what the statements use with what is defined.
func (h *Handler) checkParams(sql, params *node) {
	used := map[string]bool{}
	for i, s := range h.Statements {
		if s.SQL == nil {
			return // its fault is known, and what it uses is not
		}
		for _, name := range s.SQL.Args {
			known := slices.ContainsFunc(h.Params, func(p Param) bool { return p.Name == name })
			if !known && !used[name] {
				item := sql.list()[i]
				sql.doc.faultf(s.Line, item.path+".run", "uses :%s, which handler.params does not define; add \"%s: $.%s\"", name, name, name)
			}
			used[name] = true
		}
	}
	if params == nil || !params.isMapping() {
		return
	}
	for _, f := range params.mapping() {
		if !used[f.name] {
			f.value.faultf("no statement uses :%s", f.name)
		}
	}
}

// check looks at fields that have to fit each other.
func (k *Consumer) check(n *node, seen map[string]bool) {
	faultf := func(name, format string, args ...any) {
		line := n.line
		for _, f := range n.mapping() {
			if f.name == name {
				line = f.value.line
			}
		}
		n.doc.faultf(line, n.path+"."+name, format, args...)
	}
	s := k.Settings
	if len(k.Name) > 200 {
		faultf("name", "longer than 200 bytes")
	}
	if s.BackoffFirst > 0 && s.BackoffMost > 0 && s.BackoffFirst > s.BackoffMost {
		faultf("backoff", "first is longer than most")
	}
	if k.Source.Kind == File || k.Source.Kind == Stdin {
		k.checkLines(faultf)
	}
	switch k.Guarantee {
	case EffectivelyOnce:
		lines := k.Source.Kind == File || k.Source.Kind == Stdin
		if lines && !seen["id"] {
			faultf("id", "missing: lines of %s carry no message id of their own; use a JSON path such as $.id, or content", k.Source.Kind)
		}
		if k.Source.Kind == File && s.Retention > 0 {
			faultf("retention", "a file is read from its start each time, so its messages must be remembered for ever; write forever, or leave it out")
		}
	case AtLeastOnce, AtMostOnce:
		k.checkPlain(seen, faultf)
	}
}

// checkLines refuses what lines do not have.
func (k *Consumer) checkLines(faultf func(name, format string, args ...any)) {
	const what = "lines of %s have no headers; use a JSON path such as $.%s"
	if k.ID.HasHeader() {
		faultf("id", what+", or content", k.Source.Kind, "id")
	}
	if k.Key != nil && k.Key.Header != "" {
		faultf("key", what, k.Source.Kind, k.Key.Header)
	}
}

// checkPlain refuses what has no effect without an inbox.
func (k *Consumer) checkPlain(seen map[string]bool, faultf func(name, format string, args ...any)) {
	for _, name := range []string{"retention", "mismatch", "keep_order"} {
		if seen[name] {
			faultf(name, "has no effect under %s, which has no record of finished messages; remove it", k.Guarantee)
		}
	}
	if k.Guarantee != AtMostOnce {
		return
	}
	for _, name := range []string{"attempts", "backoff", "id"} {
		if seen[name] {
			faultf(name, "has no effect under at-most-once, which never tries again; remove it")
		}
	}
	if k.Source.Kind == File && k.Settings.Lanes > 1 {
		faultf("lanes", "a file is read in order under at-most-once; remove it")
	}
}

// checkTogether looks for consumers that are in each other's way.
func (c *Config) checkTogether(doc *document) {
	names, sources := map[string]int{}, map[string]int{}
	for i, k := range c.Consumers {
		if first, dup := names[k.Name]; dup && k.Name != "" {
			doc.faultf(c.lines[k.Field("name")], k.Field("name"), "%q is the name of consumers[%d] too; the name tells whose messages are done", k.Name, first)
		}
		names[k.Name] = i
		if k.Source.Kind == "" || k.Source.Kind == File {
			continue // a file can be read by several
		}
		if first, dup := sources[k.Source.String()]; dup {
			doc.faultf(c.lines[k.Field("source")], k.Field("source"), "%s is the source of consumers[%d] too: each message would reach one of them only%s",
				k.Source, first, queueCure(k.Source))
		}
		sources[k.Source.String()] = i
	}
}

func queueCure(s Source) string {
	if s.Kind == Queue {
		return fmt.Sprintf("; give each consumer a queue of its own, and publish to both, or one consumer more lanes for %s", s)
	}
	return ""
}

// redact removes the password of a URL.
func redact(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" {
		kind, _, _ := strings.Cut(s, ":")
		return kind + ":…"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…" // some drivers take a password there
	}
	return u.Redacted()
}
