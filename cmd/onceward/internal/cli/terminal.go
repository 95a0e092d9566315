package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/term"
)

// terminal writes log lines above a line that is rewritten. Where w is no terminal, the latter is
// left out.
type terminal struct {
	tty bool

	mu   sync.Mutex
	w    io.Writer
	line string
}

func newTerminal(w io.Writer) *terminal {
	f, ok := w.(*os.File)
	return &terminal{w: w, tty: ok && term.IsTerminal(int(f.Fd()))}
}

const clearLine = "\r\x1b[K"

// Write writes log lines.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line == "" {
		return t.w.Write(p)
	}
	if _, err := io.WriteString(t.w, clearLine+string(p)+t.line); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show rewrites the last line.
func (t *terminal) show(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tty || line == "" && t.line == "" {
		return
	}
	t.line = line
	_, _ = io.WriteString(t.w, clearLine+line) // a bar that can't be drawn harms nobody
}

// gauge draws how much is done.
func gauge(done, total int64) string {
	const width = 24
	share := min(max(float64(done)/float64(max(total, 1)), 0), 1)
	full := int(share * width)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("█", full), strings.Repeat("·", width-full), share*100)
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 10_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(int64(n)) + " " + thing + "s"
}

// thousands separates the digits of a number in groups.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

var _ io.Writer = (*terminal)(nil)
