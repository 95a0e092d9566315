package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward"
)

type deadCmd struct {
	List    deadListCmd    `cmd:"" help:"List dead letters."`
	Show    deadShowCmd    `cmd:"" help:"Show dead letters with their bodies."`
	Replay  deadReplayCmd  `cmd:"" help:"Let dead letters be processed again."`
	Discard deadDiscardCmd `cmd:"" help:"Delete dead letters for good; a repeat of such a message is a duplicate."`
}

// filters select dead letters; those that are set must all match.
type filters struct {
	Config   string  `arg:"" help:"The config file." placeholder:"CONFIG"`
	Consumer string  `help:"Of this consumer."`
	Queue    string  `help:"In this queue; consumers keep theirs in the queue retries."`
	ID       idArg   `name:"id" help:"With this message id."`
	Reason   string  `help:"Whose reason contains this text."`
	Seq      []int64 `help:"With these numbers, as dead list shows them."`
	JSON     bool    `help:"Print as JSON, one object a line."`
}

func (f *filters) filter() onceward.Filter {
	return onceward.Filter{Queue: f.Queue, Consumer: f.Consumer, ID: string(f.ID), Reason: f.Reason, Seqs: f.Seq, State: onceward.Dead}
}

var errNoMatch = errors.New("no dead letters match")

// withStore opens the store of a config file for f.
func withStore(ctx context.Context, file string, f func(o *opened) error) (err error) {
	o, err := openStore(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return f(o)
}

type deadListCmd struct {
	filters
	Limit int `default:"100" help:"At most so many."`
}

// Run is the command.
func (c *deadListCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		f := c.filter()
		f.Limit = c.Limit
		rows, err := o.store.List(ctx, f)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.json(rows, func(r onceward.Leased) any { return deadJSON(r, false) })
		}
		if len(rows) == 0 {
			return a.write(errNoMatch.Error() + "\n")
		}
		t := newTable(a.out, "SEQ", "QUEUE", "CONSUMER", "ID", "ATTEMPTS", "AGE", "REASON")
		for _, r := range rows {
			t.row(fmt.Sprint(r.Seq), r.Queue, r.Consumer, onceward.Quote(r.Message.ID), fmt.Sprint(r.Attempts),
				r.Age.Round(time.Second).String(), short(r.Reason, 100))
		}
		if len(rows) == c.Limit {
			t.after(fmt.Sprintf("there may be more: --limit is %d\n", c.Limit))
		}
		return t.flush()
	})
}

type deadShowCmd struct {
	filters
	Limit int  `default:"10" help:"At most so many."`
	Raw   bool `help:"Print the bodies alone, every byte as it is."`
}

// Run is the command.
func (c *deadShowCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		f := c.filter()
		f.Limit = c.Limit
		rows, err := o.store.List(ctx, f)
		if err == nil && len(rows) == 0 {
			err = errNoMatch
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return a.json(rows, func(r onceward.Leased) any { return deadJSON(r, true) })
		}
		for _, r := range rows {
			if c.Raw {
				_, err = a.out.Write(r.Message.Body)
			} else {
				err = a.write(deadText(r))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

type deadReplayCmd struct {
	filters
	All   bool `help:"Every dead letter."`
	Limit int  `help:"At most so many; 0 for no limit."`
}

// Run is the command.
func (c *deadReplayCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		rows, err := c.all(ctx, o, c.All, c.Limit)
		if err != nil {
			return err
		}
		done, err := appliedAlready(ctx, o, rows)
		if err != nil {
			return err
		}
		n, err := bySeqs(rows, func(f onceward.Filter) (int, error) { return o.store.Replay(ctx, f) })
		if c.JSON {
			return errors.Join(err, json.NewEncoder(a.out).Encode(map[string]any{"replayed": n, "applied_already": len(done)}))
		}
		for _, t := range done {
			err = errors.Join(err, a.write(fmt.Sprintf("%s was applied already by consumer %s, at %s: it will not be applied again\n",
				onceward.Quote(t.ID), t.Consumer, t.At.Format(time.RFC3339))))
		}
		return errors.Join(err, a.write(counted(n, "dead letter")+" will be processed again by the next run\n"))
	})
}

type deadDiscardCmd struct {
	filters
	All   bool `help:"Every dead letter."`
	Limit int  `help:"At most so many; 0 for no limit."`
}

// Run is the command.
func (c *deadDiscardCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		rows, err := c.all(ctx, o, c.All, c.Limit)
		if err != nil {
			return err
		}
		n, err := bySeqs(rows, func(f onceward.Filter) (int, error) { return o.store.Discard(ctx, f) })
		if c.JSON {
			return errors.Join(err, json.NewEncoder(a.out).Encode(map[string]any{"discarded": n}))
		}
		return errors.Join(err, a.write(counted(n, "dead letter")+" discarded\n"))
	})
}

// all lists what the filters match; no filter at all needs --all. Only with --all nothing is no error.
func (f *filters) all(ctx context.Context, o *opened, all bool, limit int) (rows []onceward.Leased, err error) {
	filter := f.filter()
	if filter.Empty() && !all {
		return nil, &exitError{exitConfig, errors.New("say which dead letters: --consumer, --queue, --id, --reason, --seq or --all")}
	}
	const page = 1000
	for limit == 0 || len(rows) < limit {
		filter.Limit = page
		if limit > 0 {
			filter.Limit = min(page, limit-len(rows))
		}
		some, err := o.store.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		for i := range some {
			some[i].Message.Body = nil // there may be many
		}
		if rows = append(rows, some...); len(some) < filter.Limit {
			break
		}
		filter.After = some[len(some)-1].Seq
	}
	if len(rows) == 0 && !all {
		return nil, errNoMatch
	}
	return rows, nil
}

// bySeqs applies op to the rows, in portions, and counts.
func bySeqs(rows []onceward.Leased, op func(onceward.Filter) (int, error)) (n int, err error) {
	for part := range slices.Chunk(rows, 500) {
		f := onceward.Filter{}
		for _, r := range part {
			f.Seqs = append(f.Seqs, r.Seq)
		}
		some, err := op(f)
		if n += some; err != nil {
			return n, err
		}
	}
	return n, nil
}

// appliedAlready finds which dead letters stand for messages that their consumer has finished, as
// one may under the same id with another body.
func appliedAlready(ctx context.Context, o *opened, rows []onceward.Leased) (done []onceward.Trace, err error) {
	by := map[string][]onceward.Leased{}
	for _, r := range rows {
		if r.Queue == onceward.Retries {
			by[r.Consumer] = append(by[r.Consumer], r)
		}
	}
	for consumer, rows := range by {
		for part := range slices.Chunk(rows, 500) {
			some, err := finishedOf(ctx, o, consumer, part)
			if err != nil {
				return nil, err
			}
			done = append(done, some...)
		}
	}
	return done, nil
}

// finishedOf looks rows of one consumer up in the inbox.
func finishedOf(ctx context.Context, o *opened, consumer string, rows []onceward.Leased) (done []onceward.Trace, err error) {
	records := make([]onceward.Record, len(rows))
	for i, r := range rows {
		records[i] = onceward.Record{ID: r.StoredID}
	}
	known, err := o.store.Recorded(ctx, consumer, records)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if !known[i] {
			continue
		}
		traces, err := o.store.Explain(ctx, r.Message.ID)
		if err != nil {
			return nil, err
		}
		for _, t := range traces {
			if t.What == "finished" && t.Consumer == consumer {
				t.ID = r.Message.ID
				done = append(done, t)
			}
		}
	}
	return done, nil
}
