package sources

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/onceward/onceward"
)

// File is a file of messages, one a line. It ends where the file ends when it gets there. Several
// consumers may read one file.
type File struct {
	path, name string
	offsets    offsets // nil: read from the start
	inOrder    bool
	progress   Progress
}

// Progress tells how far a source has been read. It is safe for concurrent use.
type Progress struct{ done, total atomic.Int64 }

// Bytes returns how many bytes have been read, and of how many; 0 of 0 if that is not known.
func (p *Progress) Bytes() (done, total int64) { return p.done.Load(), p.total.Load() }

// NewFile reads the file at path, which the config calls name, from its start each time: for
// effectively-once, where the inbox knows what is done.
func NewFile(path, name string) *File { return &File{path: path, name: name} }

// NewResumingFile is NewFile that goes on where the consumer has finished, as kept in store: for
// guarantees that keep no inbox. With inOrder the offset is stored before Settle returns, for
// at-most-once; lines must then be settled in their order.
func NewResumingFile[TTx any](path, name string, store PositionStore[TTx], inOrder bool) *File {
	return &File{path: path, name: name, offsets: storedOffsets[TTx]{store}, inOrder: inOrder}
}

func (f *File) String() string { return "file:" + f.name }

// Capabilities says that a file read from the start repeats its messages for ever, and that one that
// goes on repeats what was not settled, and knows which of it may have been started.
func (f *File) Capabilities() onceward.Capabilities {
	if f.offsets != nil {
		return onceward.Capabilities{Hints: true}
	}
	return onceward.Capabilities{Horizon: onceward.Forever}
}

// Progress tells how far the file has been read.
func (f *File) Progress() *Progress { return &f.progress }

// Subscribe opens the file. A file that is missing, unreadable, a directory, or shorter than what
// was read of it before, is a permanent error.
func (f *File) Subscribe(ctx context.Context, p onceward.SubscribeParams) (onceward.Session, error) {
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return nil, onceward.Permanent(NotRegular(f.path, info)) // opening a pipe would wait for its writer
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, onceward.Permanent(err)
	}
	s, err := f.open(ctx, file, p)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

func (f *File) open(ctx context.Context, file *os.File, p onceward.SubscribeParams) (*session, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, onceward.Permanent(err)
	}
	log, err := f.identity(file)
	if err != nil {
		return nil, onceward.Permanent(err)
	}
	s := &session{from: filepath.Base(f.path), log: log, close: file.Close, progress: &f.progress, limit: lineLimit}
	s.progress.total.Store(info.Size())
	var at, number int64
	if f.offsets != nil {
		s.keep, err = takeOver(ctx, f.offsets, p, log, f.inOrder)
		if err != nil {
			return nil, err
		}
		if at, number, err = resume(file, s.keep.at.Next, info.Size()); err != nil {
			return nil, err
		}
	}
	s.progress.done.Store(at)
	s.lines = newLines(file, at, number)
	return s, nil
}

// NotRegular is the error for a path that is no regular file: it could not be read again.
func NotRegular(path string, info os.FileInfo) error {
	if info.IsDir() {
		return fmt.Errorf("%s is a directory, and a file is expected", path)
	}
	return fmt.Errorf("%s is a pipe or a device, and a file is expected; the source stdin reads from a pipe", path)
}

// identity names the file by a digest of its first line, so that another file put in its place is
// not taken for it.
func (f *File) identity(file *os.File) (string, error) {
	const enough = 1 << 20
	first, err := bufio.NewReader(io.LimitReader(file, enough)).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.TrimRight(first, "\r\n"))
	return "file:" + f.name + "#" + hex.EncodeToString(sum[:6]), nil
}

// resume moves to where reading goes on, and counts the lines before.
func resume(file *os.File, next, size int64) (at, number int64, err error) {
	if next == 0 {
		return 0, 0, nil
	}
	if next > size {
		return 0, 0, onceward.Permanent(fmt.Errorf("%s ends at byte %d, but was read up to byte %d before: it was cut or replaced; give the new content a new file name",
			file.Name(), size, next))
	}
	number, lineStart, err := countLines(file, next)
	if err != nil {
		return 0, 0, onceward.Permanent(err)
	}
	at = next
	if lineStart < next { // the last line had no end when it was read
		number++
		if at, err = skipEnd(file, next, size); err != nil {
			return 0, 0, onceward.Permanent(err)
		}
		if at == next && next < size { // it has grown since, and is another message now
			at, number = lineStart, number-1
		}
	}
	_, err = file.Seek(at, io.SeekStart)
	return at, number, err
}

// countLines counts the line ends before offset to, and says where the line after the last starts.
func countLines(file *os.File, to int64) (ends, lineStart int64, err error) {
	r := io.NewSectionReader(file, 0, to)
	buf := make([]byte, chunkSize)
	for at := int64(0); ; {
		n, err := r.Read(buf)
		ends += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			lineStart = at + int64(i) + 1
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return ends, lineStart, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// skipEnd steps over a line end at the offset, if there is one.
func skipEnd(file *os.File, at, size int64) (int64, error) {
	var end [2]byte
	n := min(2, size-at)
	if _, err := file.ReadAt(end[:n], at); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	switch {
	case n > 0 && end[0] == '\n':
		return at + 1, nil
	case n > 1 && end == [2]byte{'\r', '\n'}:
		return at + 2, nil
	}
	return at, nil
}
