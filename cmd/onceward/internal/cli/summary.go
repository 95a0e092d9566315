package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/consumers"
)

// summary is what a run of a consumer came to. Received + WaitingAtStart = Processed + Duplicates +
// Skipped + Dead + Waiting + GivenBack, once the consumer has stopped.
type summary struct {
	Consumer       string `json:"consumer"`
	Received       int64  `json:"received"`
	Processed      int64  `json:"processed"`
	Duplicates     int64  `json:"duplicates"`
	Skipped        int64  `json:"skipped"`
	Dead           int64  `json:"dead"`
	Waiting        int64  `json:"waiting"`
	GivenBack      int64  `json:"given_back"`
	WaitingAtStart int64  `json:"waiting_at_start"`
}

func summarize(c *consumers.Consumer) summary {
	s := c.Stats()
	return summary{
		Consumer: c.Name(), Received: s.Received, Processed: s.Processed, Duplicates: s.Duplicates, Skipped: s.Skipped,
		Dead: s.Dead, Waiting: s.Waiting, GivenBack: s.GivenBack, WaitingAtStart: s.WaitingAtStart,
	}
}

// printSummaries prints one summary per consumer, and returns how many dead letters of these
// consumers are in the store.
func (w *worker) printSummaries(ctx context.Context, out io.Writer) (dead int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rows, err := w.store.store.Stats(ctx)
	var text strings.Builder
	for _, c := range w.consumers {
		s := summarize(c)
		left := deadLetters(rows, c)
		dead += left
		if w.cmd.Summary == "json" || w.cmd.JSON {
			line, jsonErr := json.Marshal(s)
			err = errors.Join(err, jsonErr)
			text.Write(append(line, '\n'))
			continue
		}
		w.writeSummary(ctx, &text, c, s, left)
	}
	_, printErr := io.WriteString(out, text.String())
	return dead, errors.Join(err, printErr)
}

// deadLetters counts the dead letters of a consumer, and of the queue that it reads.
func deadLetters(rows []onceward.QueueStats, c *consumers.Consumer) (n int64) {
	for _, r := range rows {
		if r.Queue == onceward.Retries && r.Consumer == c.Name() || r.Queue == c.Config.Source.Name && r.Queue != onceward.Retries {
			n += r.Dead
		}
	}
	return n
}

func (w *worker) writeSummary(ctx context.Context, b *strings.Builder, c *consumers.Consumer, s summary, left int64) {
	took := time.Since(w.began)
	state := "running"
	switch {
	case c.Stats().State != onceward.Stopped:
	case c.Config.Source.Finite() && !w.stopped.Load() && s.GivenBack == 0:
		state = "done"
	default:
		state = "stopped"
	}
	line := func(name string, n int64, more string) {
		fmt.Fprintf(b, "  %-14s %13s  %s\n", name, thousands(n), more)
	}
	fmt.Fprintf(b, "%s: %s after %s, %s messages/s\n", c.Name(), state, took.Round(10*time.Millisecond),
		thousands(int64(float64(s.Received)/max(took.Seconds(), 0.001))))
	line("received", s.Received, "from "+c.Config.Source.String())
	if s.WaitingAtStart > 0 {
		line("waited", s.WaitingAtStart, "for a retry when this run began")
	}
	line("applied", s.Processed, "")
	if s.Duplicates > 0 || s.Received > 0 {
		line("duplicates", s.Duplicates, "dropped: applied, or put aside, before")
	}
	if s.Skipped > 0 {
		line("skipped", s.Skipped, "not matched by this consumer")
	}
	if s.Dead > 0 || left > 0 {
		line("dead letters", s.Dead, fmt.Sprintf("of this run; %s in all, see: onceward dead list %s", thousands(left), w.cmd.Config))
	}
	if s.Waiting > 0 {
		line("waiting", s.Waiting, w.nextRetry(ctx, c.Name()))
	}
	if s.GivenBack > 0 {
		line("given back", s.GivenBack, "not applied yet: they come again with the next run")
	}
	fmt.Fprintf(b, "  database       %s\n", w.store.Store.Text)
}

// nextRetry says when the next waiting message of a consumer is due.
func (w *worker) nextRetry(ctx context.Context, consumer string) string {
	rows, err := w.store.store.List(ctx, onceward.Filter{
		Queue: onceward.Retries, Consumer: consumer, State: onceward.Waiting, Limit: 10_000,
	})
	if err != nil || len(rows) == 0 {
		return "for a retry: run again"
	}
	due := rows[0].Due
	for _, r := range rows {
		due = min(due, r.Due)
	}
	if due <= 0 {
		return "for a retry, the first now: run again"
	}
	return fmt.Sprintf("for a retry, the first in %s: run again then", due.Round(time.Second))
}
