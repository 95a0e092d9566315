package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward"
)

func (a *app) write(s string) error {
	_, err := io.WriteString(a.out, s)
	return err
}

// json1 prints one object a line.
func json1[T any](out io.Writer, rows []T, of func(T) any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, r := range rows {
		if err := enc.Encode(of(r)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) json(rows []onceward.Leased, of func(onceward.Leased) any) error {
	return json1(a.out, rows, of)
}

// table lines up columns.
type table struct {
	out  io.Writer
	w    *tabwriter.Writer
	last string
}

func newTable(out io.Writer, head ...string) *table {
	t := &table{out: out, w: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) {
	for i := range cells {
		if cells[i] = printable([]byte(cells[i]), false); cells[i] == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) after(line string) { t.last = line }

func (t *table) flush() error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(t.out, t.last)
	return err
}

// printable escapes what a terminal could take for a command, and what is not text. Line ends and
// tabs stay if text has several lines.
func printable(text []byte, lines bool) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case lines && (r == '\n' || r == '\t'), r != utf8.RuneError && strconv.IsPrint(r):
			b.WriteRune(r)
		case n == 1:
			q := strconv.Quote(string(text[:1]))
			b.WriteString(q[1 : len(q)-1])
		default:
			q := strconv.QuoteToASCII(string(text[:n]))
			b.WriteString(q[1 : len(q)-1])
		}
		text = text[n:]
	}
	return b.String()
}

// short cuts a text for one line.
func short(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

const bodyShown = 2000

// bodyText is a body for people.
func bodyText(body []byte) string {
	if len(body) <= bodyShown {
		return printable(bytes.TrimRight(body, "\n"), true)
	}
	cut := bodyShown
	for cut > bodyShown-utf8.UTFMax && !utf8.RuneStart(body[cut]) {
		cut--
	}
	return fmt.Sprintf("%s\n… the first %s of %s bytes; --raw prints them all",
		printable(body[:cut], true), thousands(int64(cut)), thousands(int64(len(body))))
}

func deadText(r onceward.Leased) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name+":", printable([]byte(value), false))
		}
	}
	line("seq", strconv.FormatInt(r.Seq, 10))
	line("id", strconv.Quote(r.Message.ID))
	line("queue", r.Queue)
	line("consumer", r.Consumer)
	line("key", r.Message.Key)
	line("from", r.Origin)
	line("attempts", strconv.Itoa(r.Attempts))
	line("age", r.Age.Round(time.Second).String())
	line("reason", r.Reason)
	names := make([]string, 0, len(r.Message.Headers))
	for name := range r.Message.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line("header", name+" = "+strings.Join(r.Message.Headers[name], ", "))
	}
	fmt.Fprintf(&b, "body:\n%s\n\n", bodyText(r.Message.Body))
	return b.String()
}

// deadJSON is a dead letter for programs. A body or a key that is not UTF-8 is in base64.
func deadJSON(r onceward.Leased, body bool) any {
	o := map[string]any{
		"seq": r.Seq, "queue": r.Queue, "consumer": r.Consumer, "attempts": r.Attempts,
		"age_seconds": int64(r.Age.Seconds()), "reason": r.Reason, "origin": r.Origin,
	}
	idJSON(o, r.Message.ID)
	if r.Message.Key != "" {
		text(o, "key", []byte(r.Message.Key))
	}
	if body {
		text(o, "body", r.Message.Body)
		if len(r.Message.Headers) > 0 {
			o["headers"] = r.Message.Headers
		}
	}
	return o
}

// idJSON gives an id as it is. JSON can't hold one that is not UTF-8: it is given as a list prints it,
// which commands take too, and its bytes stand beside it.
func idJSON(o map[string]any, id string) {
	if utf8.ValidString(id) {
		o["id"] = id
		return
	}
	o["id"] = strconv.Quote(id)
	o["id_base64"] = base64.StdEncoding.EncodeToString([]byte(id))
}

func text(o map[string]any, name string, value []byte) {
	if utf8.Valid(value) {
		o[name] = string(value)
		return
	}
	o[name+"_base64"] = base64.StdEncoding.EncodeToString(value)
}
