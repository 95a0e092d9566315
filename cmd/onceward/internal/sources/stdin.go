package sources

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/onceward/onceward"
)

// Stdin is a stream that can be read once, such as standard input. It remembers nothing beyond the
// process: what was read and not finished when it ends comes again only if whoever feeds the stream
// sends it again.
type Stdin struct {
	lines    *lines
	once     sync.Once
	batches  chan batch
	progress Progress

	mu   sync.Mutex
	left []onceward.Incoming // read, and not handed out or given back by a session that has ended
}

type batch struct {
	ins []onceward.Incoming
	err error // after them
}

// NewStdin reads r. Nothing is read before the first Subscribe.
func NewStdin(r io.Reader) *Stdin {
	return &Stdin{lines: newLines(r, 0, 0), batches: make(chan batch)}
}

func (s *Stdin) String() string { return "stdin" }

// Capabilities says that the stream does nothing by itself. Whoever feeds it may repeat messages.
func (s *Stdin) Capabilities() onceward.Capabilities { return onceward.Capabilities{} }

// Progress tells how many bytes have been read; the total is not known.
func (s *Stdin) Progress() *Progress { return &s.progress }

// Subscribe begins to read, or goes on where the last session ended.
func (s *Stdin) Subscribe(context.Context, onceward.SubscribeParams) (onceward.Session, error) {
	s.once.Do(func() { go s.read() })
	return &stdinSession{src: s, open: map[int64]onceward.Incoming{}}, nil
}

// read runs until the stream ends, for a read can't be interrupted. It reads at most one batch ahead.
func (s *Stdin) read() {
	defer close(s.batches)
	for {
		var b batch
		for size := 0; size < batchBytes && (len(b.ins) == 0 || s.lines.buffered()); {
			l, err := s.lines.next()
			if b.err = err; err != nil {
				break
			}
			b.ins = append(b.ins, l.incoming("stdin", s.lines.limit))
			size += len(l.body) + 64
			s.progress.done.Store(l.next)
		}
		s.batches <- b
		if b.err != nil {
			return
		}
	}
}

type stdinSession struct {
	src   *Stdin
	again returns
	err   error // the stream has ended

	mu   sync.Mutex
	open map[int64]onceward.Incoming // handed out and not settled, by line
}

// Receive waits for lines and returns those that have come: at most so many, and about 1 MiB.
func (s *stdinSession) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ins := s.again.due(most); len(ins) > 0 {
		return ins, nil
	}
	for {
		if ins := s.take(most); len(ins) > 0 {
			return ins, nil
		}
		if errors.Is(s.err, io.EOF) {
			return s.again.wait(ctx)
		}
		if s.err != nil {
			return nil, onceward.Permanent(s.err)
		}
		select {
		case b, ok := <-s.src.batches:
			if s.err = b.err; !ok {
				s.err = io.EOF
			}
			s.src.mu.Lock()
			s.src.left = append(s.src.left, b.ins...)
			s.src.mu.Unlock()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take hands out what has been read.
func (s *stdinSession) take(most int) []onceward.Incoming {
	s.src.mu.Lock()
	n := min(most, len(s.src.left))
	ins := slices.Clone(s.src.left[:n])
	s.src.left = s.src.left[n:]
	s.src.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ins {
		s.open[lineOf(&ins[i])] = ins[i]
	}
	return ins
}

func lineOf(in *onceward.Incoming) int64 {
	p, _ := in.Receipt.(place)
	return p.line
}

// Settle forgets what is finished.
func (s *stdinSession) Settle(_ context.Context, xs ...onceward.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range xs {
		if x.Verdict == onceward.Requeue {
			s.again.add(x)
			continue
		}
		delete(s.open, lineOf(&x.Incoming))
	}
	return nil
}

// Close gives what is not settled back to the next session. The stream stays open.
func (s *stdinSession) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := make([]onceward.Incoming, 0, len(s.open))
	for _, in := range s.open {
		in.Redelivered = true
		back = append(back, in)
	}
	s.open = map[int64]onceward.Incoming{}
	slices.SortFunc(back, func(a, b onceward.Incoming) int { return int(lineOf(&a) - lineOf(&b)) })
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	s.src.left = append(back, s.src.left...)
	return nil
}
