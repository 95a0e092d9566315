package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readLines(t *testing.T, r io.Reader, limit int) (got []line) {
	t.Helper()
	ls := newLines(r, 0, 0)
	ls.limit = limit
	for {
		l, err := ls.next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
}

func TestLinesEndWithLFOrCRLFAndTheLastNeedsNoEnd(t *testing.T) {
	for text, want := range map[string]string{
		"":               "",
		"\n":             "1@1:|",
		"a":              "1@1:a|",
		"a\n":            "1@2:a|",
		"a\r\nb\r\n":     "1@3:a|2@6:b|",
		"a\n\n\nb":       "1@2:a|2@3:|3@4:|4@5:b|",
		"\r\n":           "1@2:|",
		"a\rb\n":         "1@4:a\rb|",
		"a\r":            "1@2:a\r|",
		"\ufeffa\nb\n":   "1@5:a|2@7:b|",
		"\ufeff\ufeffa":  "1@7:\ufeffa|",
		"\ufeff\n":       "1@4:|",
		"\ufeff":         "",
		"\xef\xbba\n":    "1@4:\xef\xbba|",
		"\xef":           "1@1:\xef|",
		"a\n\ufeffb":     "1@2:a|2@6:\ufeffb|",
		"\xff\xfe\n\x00": "1@3:\xff\xfe|2@4:\x00|",
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
			"with the end": iotest.DataErrReader(strings.NewReader(text)),
		} {
			got := ""
			for _, l := range readLines(t, r, lineLimit) {
				got += fmt.Sprintf("%d@%d:%s|", l.number, l.next, l.body)
			}
			if got != want {
				t.Errorf("%q %s: got %q, want %q", text, name, got, want)
			}
		}
	}
}

func TestLinesLongerThanAChunkAreWhole(t *testing.T) {
	long := strings.Repeat("x", 3*chunkSize+17)
	got := readLines(t, strings.NewReader("a\n"+long+"\nb\n"), lineLimit)
	if len(got) != 3 || string(got[1].body) != long || string(got[2].body) != "b" || string(got[0].body) != "a" {
		t.Errorf("%d lines", len(got))
	}
}

func TestLineOverTheLimitIsCutAndReported(t *testing.T) {
	const limit = 100_000
	for name, n := range map[string]int{"a little": limit + 1, "much": 9 * limit} {
		for _, end := range []string{"\n", ""} {
			text := "a\n" + strings.Repeat("x", n) + end
			if end != "" {
				text += "b\n"
			}
			got := readLines(t, strings.NewReader(text), limit)
			if got[1].size != int64(n) || len(got[1].body) != keptOfLong || got[1].next != int64(2+n+len(end)) {
				t.Errorf("%s: size %d, kept %d, next %d", name, got[1].size, len(got[1].body), got[1].next)
			}
			if end != "" && (len(got) != 3 || string(got[2].body) != "b" || got[2].number != 3) {
				t.Errorf("%s: the line after it: %v", name, got[2:])
			}
			in := got[1].incoming("f", limit)
			if err := TooLong(&in.Message); !onceward.IsPermanent(err) || !strings.Contains(err.Error(), fmt.Sprintf("line 2 has %d bytes", n)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestBodiesAreNotOverwritten(t *testing.T) {
	var text bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	for i, l := range readLines(t, &text, lineLimit) {
		if want := fmt.Sprintf("line %d", i); string(l.body) != want || cap(l.body) != len(l.body) {
			t.Fatalf("line %d reads %q, capacity %d", i, l.body, cap(l.body))
		}
	}
}

func TestReadErrorIsReported(t *testing.T) {
	ls := newLines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("disk"))), 0, 0)
	if l, err := ls.next(); err != nil || string(l.body) != "a" {
		t.Fatal(l, err)
	}
	if _, err := ls.next(); err == nil || err.Error() != "disk" {
		t.Errorf("half a line before a failure: %v", err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.ndjson")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func subscribe(t *testing.T, src onceward.Source) onceward.Session {
	t.Helper()
	s, err := src.Subscribe(t.Context(), onceward.SubscribeParams{Consumer: "c", Prefetch: 2})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func receive(t *testing.T, s onceward.Session, most int) (ins []onceward.Incoming, bodies string) {
	t.Helper()
	ins, err := s.Receive(t.Context(), most)
	if errors.Is(err, io.EOF) {
		return nil, "EOF"
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range ins {
		bodies += string(in.Body) + ","
	}
	return ins, bodies
}

func settle(t *testing.T, s onceward.Session, ins ...onceward.Incoming) {
	t.Helper()
	for _, in := range ins {
		if err := s.Settle(t.Context(), onceward.Settlement{Incoming: in, Verdict: onceward.Ack}); err != nil {
			t.Fatal(err)
		}
	}
}

func closeSession(t *testing.T, s onceward.Session) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantBodies(t *testing.T, s onceward.Session, most int, want string) []onceward.Incoming {
	t.Helper()
	ins, got := receive(t, s, most)
	if got != want {
		t.Fatalf("received %q, want %q", got, want)
	}
	return ins
}

func TestFileIsReadFromItsStartEachTime(t *testing.T) {
	src := NewFile(write(t, "a\nb\nc"), "m.ndjson")
	for range 2 {
		s := subscribe(t, src)
		ins := wantBodies(t, s, 2, "a,b,")
		if at := fmt.Sprint(ins[1].Receipt); at != "m.ndjson:2" {
			t.Errorf("the second line is at %s", at)
		}
		if p := ins[1].Position; p.Next != 4 || !strings.HasPrefix(p.Log, "file:m.ndjson#") {
			t.Errorf("position %v", p)
		}
		settle(t, s, ins...)
		wantBodies(t, s, 2, "c,")
		wantBodies(t, s, 2, "EOF")
		closeSession(t, s)
	}
	if src.Capabilities().Horizon != onceward.Forever {
		t.Error("such a file repeats its messages for ever")
	}
}

func TestWhatIsGivenBackComesAgainBeforeTheEnd(t *testing.T) {
	s := subscribe(t, NewFile(write(t, "a\nb\n"), "m"))
	defer closeSession(t, s)
	ins := wantBodies(t, s, 10, "a,b,")
	if err := s.Settle(t.Context(), onceward.Settlement{Incoming: ins[0], Verdict: onceward.Requeue, After: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if again := wantBodies(t, s, 10, "a,"); !again[0].Redelivered {
		t.Error("a repeat is not marked")
	}
	wantBodies(t, s, 10, "EOF")
}

func TestReceiveIsBoundedInBytes(t *testing.T) {
	s := subscribe(t, NewFile(write(t, strings.Repeat(strings.Repeat("x", 100_000)+"\n", 30)), "m"))
	defer closeSession(t, s)
	if ins, _ := receive(t, s, 1000); len(ins) > 12 {
		t.Errorf("%d lines of 100 kB at once", len(ins))
	}
}

func TestFileThatCantBeReadIsPermanent(t *testing.T) {
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "no"), "directory": t.TempDir()} {
		if _, err := NewFile(path, "m").Subscribe(t.Context(), onceward.SubscribeParams{}); !onceward.IsPermanent(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func resuming(path string, store *memory.Store, inOrder bool) *File {
	return NewResumingFile[*memory.Tx](path, "m", store, inOrder)
}

func TestResumingFileGoesOnBehindTheFinishedPrefix(t *testing.T) {
	path, store := write(t, "a\nb\nc\nd\n"), memory.NewStore()
	s := subscribe(t, resuming(path, store, false))
	ins := wantBodies(t, s, 3, "a,b,c,")
	settle(t, s, ins[0], ins[2]) // c does not cover b
	closeSession(t, s)

	s = subscribe(t, resuming(path, store, false))
	ins = wantBodies(t, s, 9, "b,c,d,")
	if !ins[0].Redelivered || !ins[1].Redelivered || ins[2].Redelivered {
		t.Error("what the interrupted session may have started, up to the prefetch, is not marked")
	}
	if at := fmt.Sprint(ins[0].Receipt); at != "m.ndjson:2" {
		t.Errorf("b is at %s", at)
	}
	settle(t, s, ins...)
	wantBodies(t, s, 9, "EOF")
	closeSession(t, s)

	if err := os.WriteFile(path, []byte("a\nb\nc\nd\ne\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = subscribe(t, resuming(path, store, false))
	if ins = wantBodies(t, s, 9, "e,"); ins[0].Redelivered {
		t.Error("nothing was started with a message that is new after a clean end")
	}
	closeSession(t, s)
}

func TestResumingFileBehindAByteOrderMark(t *testing.T) {
	path, store := write(t, "\ufeffa\nb"), memory.NewStore()
	s := subscribe(t, resuming(path, store, false))
	settle(t, s, wantBodies(t, s, 1, "a,")...)
	closeSession(t, s)
	s = subscribe(t, resuming(path, store, false))
	settle(t, s, wantBodies(t, s, 1, "b,")...)
	closeSession(t, s)
	s = subscribe(t, resuming(path, store, false))
	wantBodies(t, s, 1, "EOF")
	closeSession(t, s)
}

func TestResumingFileIsFenced(t *testing.T) {
	path, store := write(t, "a\nb\n"), memory.NewStore()
	old := subscribe(t, resuming(path, store, false))
	ins := wantBodies(t, old, 1, "a,")
	newer := subscribe(t, resuming(path, store, false))
	if err := old.Settle(t.Context(), onceward.Settlement{Incoming: ins[0], Verdict: onceward.Ack}); !errors.Is(err, onceward.ErrStale) {
		t.Errorf("settled by a fenced session: %v", err)
	}
	if _, err := old.Receive(t.Context(), 1); !onceward.IsPermanent(err) {
		t.Errorf("a fenced session goes on: %v", err)
	}
	wantBodies(t, newer, 1, "a,")
	closeSession(t, newer)
	closeSession(t, old)
}

func TestSettlingInOrderRefusesAGap(t *testing.T) {
	path, store := write(t, "a\nb\n"), memory.NewStore()
	s := subscribe(t, resuming(path, store, true))
	defer closeSession(t, s)
	ins := wantBodies(t, s, 2, "a,b,")
	if err := s.Settle(t.Context(), onceward.Settlement{Incoming: ins[1], Verdict: onceward.Ack}); err == nil {
		t.Error("b counts as settled, though a crash would repeat it")
	}
}

func TestResumingFileThatChanged(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"grown":                      {"a\nb\n", "a\nb\nc\n", "c,"},
		"end of the last line":       {"a\nb", "a\nb\nc\n", "c,"},
		"end of the last line, CRLF": {"a\nb", "a\nb\r\nc\n", "c,"},
		"last line grown":            {"a\nb", "a\nbcd\ne\n", "bcd,e,"},
		"another file":               {"a\nb\n", "x\ny\nz\n", "x,y,z,"},
		"nothing new":                {"a\nb", "a\nb", "EOF"},
		"first line only, ended":     {"a", "a\nb", "b,"},
		"empty before":               {"", "a\n", "a,"},
		"cut":                        {"a\nb\nc\n", "a\n", "permanent"},
	} {
		path, store := write(t, c.before), memory.NewStore()
		s := subscribe(t, resuming(path, store, false))
		ins, _ := receive(t, s, 10)
		settle(t, s, ins...)
		closeSession(t, s)
		if err := os.WriteFile(path, []byte(c.after), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := resuming(path, store, false).Subscribe(t.Context(), onceward.SubscribeParams{Consumer: "c"})
		if err != nil {
			if !onceward.IsPermanent(err) || c.want != "permanent" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if _, got := receive(t, s, 10); got != c.want {
			t.Errorf("%s: received %q, want %q", name, got, c.want)
		}
		closeSession(t, s)
	}
}

func TestStdinReturnsWhatHasComeAndEnds(t *testing.T) {
	r, w := io.Pipe()
	src := NewStdin(r)
	s := subscribe(t, src)
	go io.WriteString(w, "a\nb\n") //nolint:errcheck // the test sees what is missing
	first := wantBodies(t, s, 1, "a,")
	second := wantBodies(t, s, 1, "b,")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Receive(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Receive on an ended context: %v", err)
	}
	settle(t, s, first...)
	closeSession(t, s)

	s = subscribe(t, src)
	if ins := wantBodies(t, s, 5, "b,"); !ins[0].Redelivered {
		t.Error("what a session left comes again, marked")
	}
	go w.Close() //nolint:errcheck // never fails
	settle(t, s, second...)
	wantBodies(t, s, 5, "EOF")
	closeSession(t, s)
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestALineWithoutEndCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ls := newLines(endless{}, 0, 0)
	ls.limit = 1 << 20
	reads := 0
	ls.over = func() error {
		if reads++; reads == 100 {
			cancel()
		}
		return ctx.Err()
	}
	if l, err := ls.next(); !errors.Is(err, context.Canceled) {
		t.Fatalf("next = %d bytes, %v", len(l.body), err)
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		_, err := NewFile(path, path).Subscribe(t.Context(), onceward.SubscribeParams{})
		if !onceward.IsPermanent(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
