package cli

import (
	"context"
	"log/slog"

	"github.com/onceward/onceward"
)

// untilTheEnd leaves out why a consumer stopped: it stops the run, which prints that as its last line.
type untilTheEnd struct{ slog.Handler }

// Handle logs a record.
func (h untilTheEnd) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelError && r.Message == onceward.Stopped.String() {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is as [slog.Handler] says.
func (h untilTheEnd) WithAttrs(attrs []slog.Attr) slog.Handler {
	return untilTheEnd{h.Handler.WithAttrs(attrs)}
}

// WithGroup is as [slog.Handler] says.
func (h untilTheEnd) WithGroup(name string) slog.Handler {
	return untilTheEnd{h.Handler.WithGroup(name)}
}
