package sources

import (
	"context"
	"errors"
	"io"

	"github.com/onceward/onceward"
)

// session reads one file once.
type session struct {
	from, log string
	limit     int
	close     func() error
	lines     *lines
	progress  *Progress
	keep      *keeper // nil: nothing is kept of what is settled
	again     returns
}

// Receive returns the next lines: at most so many, and about 1 MiB. What was given back comes again
// in this session. A file does not make it wait; only what was given back for later does, at the end.
func (s *session) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ins := s.again.due(most); len(ins) > 0 {
		return ins, nil
	}
	s.lines.over = ctx.Err // also within a line that has no end
	var ins []onceward.Incoming
	for size := 0; len(ins) < most && size < batchBytes; {
		l, err := s.lines.next()
		if errors.Is(err, io.EOF) && len(ins) == 0 {
			return s.again.wait(ctx)
		}
		if err != nil && len(ins) == 0 {
			return nil, err
		}
		if err != nil {
			break // it comes again with the next call
		}
		ins = append(ins, s.incoming(l))
		size += len(l.body) + 64
		s.progress.done.Store(l.next)
	}
	if s.keep != nil {
		if err := s.keep.delivered(ins); err != nil {
			return nil, err
		}
	}
	return ins, nil
}

func (s *session) incoming(l line) onceward.Incoming {
	in := l.incoming(s.from, s.limit)
	in.Position = onceward.Position{Log: s.log, Next: l.next}
	if s.keep != nil {
		in.Position.Epoch = s.keep.epoch
	}
	return in
}

// Settle stores what is finished, where the source keeps its place.
func (s *session) Settle(ctx context.Context, xs ...onceward.Settlement) error {
	done := make([]onceward.Settlement, 0, len(xs))
	for _, x := range xs {
		if x.Verdict == onceward.Requeue {
			s.again.add(x)
			continue
		}
		done = append(done, x)
	}
	if s.keep == nil {
		return nil
	}
	return s.keep.settle(ctx, done)
}

// Close closes the file. What is not settled comes again with the next session.
func (s *session) Close(ctx context.Context) error {
	if s.keep == nil {
		return s.close()
	}
	return errors.Join(s.keep.close(ctx), s.close())
}
