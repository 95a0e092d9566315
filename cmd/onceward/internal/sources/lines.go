// Package sources has the sources that the program brings itself: files and standard input, one
// message a line.
package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/onceward/onceward"
)

const (
	chunkSize  = 256 << 10 // bodies are slices of chunks of this size
	batchBytes = 1 << 20   // Receive returns early once it has collected so much
	lineLimit  = 256 << 20 // a longer line is no message
	keptOfLong = 64 << 10  // what is kept of such a line
)

// tooLong is the header that marks a line over the limit. It holds the reason.
const tooLong = "onceward-line-too-long"

// TooLong returns an error if m stands for a line over the limit. Its body is the line's beginning
// only, so it must become a dead letter.
func TooLong(m *onceward.Message) error {
	if m.Headers == nil {
		return nil
	}
	if reason := m.Headers.Get(tooLong); reason != "" {
		return onceward.Permanent(errors.New(reason))
	}
	return nil
}

// line is one line without its end.
type line struct {
	body   []byte
	number int64
	next   int64 // offset after the line and its end
	size   int64 // of a line over the limit, else 0
}

// lines cuts a stream into lines that end with LF or CRLF; the last may lack its end.
type lines struct {
	r      io.Reader
	buf    []byte // the current chunk; bodies point into it, so it is never written again
	start  int    // of what has not been cut yet
	offset int64  // of buf[start] in the stream
	number int64  // of the line that was cut last
	limit  int
	fresh  bool         // nothing has been cut yet, and the stream begins here
	err    error        // of the reader, once it has failed or ended
	over   func() error // if set, asked before each read: why to read no more
}

func newLines(r io.Reader, offset, number int64) *lines {
	return &lines{r: r, offset: offset, number: number, limit: lineLimit, fresh: offset == 0}
}

// buffered reports whether next will return without reading.
func (l *lines) buffered() bool {
	return l.err != nil || bytes.IndexByte(l.buf[l.start:], '\n') >= 0
}

// next returns the next line, or the reader's error, which is io.EOF at the end.
func (l *lines) next() (line, error) {
	if l.fresh {
		l.skipMark()
	}
	searched := 0
	for {
		rest := l.buf[l.start:]
		if i := bytes.IndexByte(rest[searched:], '\n'); i >= 0 {
			if searched+i > l.limit {
				return l.cutLong()
			}
			return l.cut(searched+i, 1), nil
		}
		searched = len(rest)
		if searched > l.limit {
			return l.cutLong()
		}
		if l.err != nil {
			if searched == 0 || !errors.Is(l.err, io.EOF) {
				return line{}, l.err
			}
			return l.cut(searched, 0), nil
		}
		l.fill()
	}
}

// byteOrderMark is what some programs for Windows begin a text in UTF-8 with. It is no part of the text.
var byteOrderMark = []byte("\xef\xbb\xbf")

func (l *lines) skipMark() {
	for len(l.buf)-l.start < len(byteOrderMark) && l.err == nil && bytes.HasPrefix(byteOrderMark, l.buf[l.start:]) {
		l.fill()
	}
	if bytes.HasPrefix(l.buf[l.start:], byteOrderMark) {
		l.start += len(byteOrderMark)
		l.offset += int64(len(byteOrderMark))
	}
	l.fresh = false
}

// cut takes n bytes as a line, and end bytes more.
func (l *lines) cut(n, end int) line {
	body := l.buf[l.start : l.start+n : l.start+n]
	l.start += n + end
	l.offset += int64(n + end)
	l.number++
	if end > 0 && n > 0 && body[n-1] == '\r' {
		body = body[: n-1 : n-1]
	}
	return line{body: body, number: l.number, next: l.offset}
}

// fill reads more into the chunk, or into a new one that begins with the unfinished line.
func (l *lines) fill() {
	if len(l.buf) == cap(l.buf) {
		rest := l.buf[l.start:]
		size := chunkSize
		if len(rest) >= size/2 {
			size = 2 * len(rest)
		}
		l.buf, l.start = append(make([]byte, 0, size), rest...), 0
	}
	if l.over != nil {
		if l.err = l.over(); l.err != nil {
			return
		}
	}
	for range 100 {
		n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
		l.buf = l.buf[:len(l.buf)+n]
		l.err = err
		if n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}

// cutLong keeps the beginning of a line over the limit and skips the rest of it.
func (l *lines) cutLong() (line, error) {
	kept := bytes.Clone(l.buf[l.start:][:min(keptOfLong, len(l.buf)-l.start)])
	size := int64(0)
	for {
		rest := l.buf[l.start:]
		i := bytes.IndexByte(rest, '\n')
		taken := len(rest)
		if i >= 0 {
			taken = i + 1
		}
		l.start += taken
		l.offset += int64(taken)
		size += int64(taken)
		if i >= 0 {
			size--
			break
		}
		l.buf, l.start = nil, 0
		if l.err != nil {
			if !errors.Is(l.err, io.EOF) {
				return line{}, l.err
			}
			break
		}
		l.fill()
	}
	l.number++
	return line{body: kept, number: l.number, next: l.offset, size: size}, nil
}

// incoming makes a delivery of a line.
func (l line) incoming(from string, limit int) onceward.Incoming {
	in := onceward.Incoming{Message: onceward.Message{Body: l.body}, Receipt: place{from, l.number}}
	if l.size > 0 {
		reason := fmt.Sprintf("line %d has %d bytes, more than the limit of %d; only its beginning is kept here", l.number, l.size, limit)
		in.Headers = onceward.Headers{tooLong: {reason}}
	}
	return in
}

// place is where a message came from.
type place struct {
	from string
	line int64
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.from, p.line) }

// EachLine calls f for every line of r, until f or r fails. A line over the limit is an error.
func EachLine(r io.Reader, f func(number int64, body []byte) error) error {
	ls := newLines(r, 0, 0)
	for {
		l, err := ls.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case l.size > 0:
			return fmt.Errorf("line %d has %d bytes, more than the limit of %d", l.number, l.size, ls.limit)
		}
		if err := f(l.number, l.body); err != nil {
			return err
		}
	}
}
