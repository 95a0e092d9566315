package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
)

type statsCmd struct {
	Config string `arg:"" help:"The config file." placeholder:"CONFIG"`
	JSON   bool   `help:"Print as JSON, one object a line."`
}

// Run is the command.
func (c *statsCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		rows, err := o.store.Stats(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return json1(a.out, rows, func(s onceward.QueueStats) any {
				return map[string]any{
					"queue": s.Queue, "consumer": s.Consumer, "waiting": s.Waiting, "in_hand": s.InHand,
					"dead": s.Dead, "oldest_seconds": int64(s.Oldest.Seconds()),
				}
			})
		}
		if len(rows) == 0 {
			return a.write("nothing waits, and there are no dead letters\n")
		}
		t := newTable(a.out, "QUEUE", "CONSUMER", "WAITING", "IN HAND", "DEAD", "OLDEST")
		for _, s := range rows {
			t.row(s.Queue, s.Consumer, thousands(s.Waiting), thousands(s.InHand), thousands(s.Dead), s.Oldest.Round(time.Second).String())
		}
		return t.flush()
	})
}

type explainCmd struct {
	Config string `arg:"" help:"The config file." placeholder:"CONFIG"`
	ID     idArg  `arg:"" name:"id" help:"The message id, or one in double quotes as lists print it."`
	JSON   bool   `help:"Print as JSON, one object a line."`
}

// Run is the command.
func (c *explainCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		traces, err := o.store.Explain(ctx, string(c.ID))
		if err == nil && len(traces) == 0 {
			err = fmt.Errorf("nothing is known about message %s: it has not come, is being processed now, or was forgotten", onceward.Quote(string(c.ID)))
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return json1(a.out, traces, func(t onceward.Trace) any {
				o := map[string]any{"what": t.What, "queue": t.Queue, "consumer": t.Consumer, "at": t.At, "reason": t.Reason}
				idJSON(o, t.ID)
				return o
			})
		}
		t := newTable(a.out, "WHAT", "CONSUMER", "AT", "ID", "QUEUE", "REASON")
		for _, x := range traces {
			t.row(x.What, x.Consumer, x.At.Format(time.RFC3339), onceward.Quote(x.ID), x.Queue, short(x.Reason, 100))
		}
		return t.flush()
	})
}

type forgetCmd struct {
	Config   string  `arg:"" help:"The config file." placeholder:"CONFIG"`
	Consumer string  `arg:"" help:"Whose record."`
	IDs      []idArg `arg:"" name:"id" help:"The message ids, or some in double quotes as lists print them."`
	JSON     bool    `help:"Print the result as JSON."`
}

// Run is the command.
func (c *forgetCmd) Run(ctx context.Context, a *app) error {
	return withStore(ctx, c.Config, func(o *opened) error {
		ids := make([]string, len(c.IDs))
		for i, id := range c.IDs {
			ids[i] = string(id)
		}
		n, err := o.store.Forget(ctx, c.Consumer, ids...)
		if err == nil && n == 0 {
			err = fmt.Errorf("consumer %s has no record of that", onceward.Quote(c.Consumer))
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return json.NewEncoder(a.out).Encode(map[string]int{"forgotten": n})
		}
		return a.write(fmt.Sprintf("%s removed: when such a message comes again, %s processes it again\n", counted(n, "record"), c.Consumer))
	})
}

type purgeCmd struct {
	Config   string `arg:"" help:"The config file." placeholder:"CONFIG"`
	Consumer string `arg:"" help:"Whose records."`
	Keep     string `required:"" help:"Remove what is older, such as 30d."`
	JSON     bool   `help:"Print the result as JSON."`
}

// Run is the command.
func (c *purgeCmd) Run(ctx context.Context, a *app) error {
	keep, err := config.ParseDuration(c.Keep)
	if err != nil {
		return &exitError{exitConfig, fmt.Errorf("--keep: %w", err)}
	}
	return withStore(ctx, c.Config, func(o *opened) error {
		const portion = 1000
		total := 0
		for {
			n, err := o.store.Purge(ctx, c.Consumer, keep, portion)
			if total += n; err != nil {
				return err
			}
			if n < portion {
				break
			}
		}
		if c.JSON {
			return json.NewEncoder(a.out).Encode(map[string]int{"purged": total})
		}
		return a.write(counted(total, "record") + " removed\n")
	})
}

type versionCmd struct {
	JSON bool `help:"Print as JSON."`
}

// Run is the command.
func (c *versionCmd) Run(a *app) error {
	v := map[string]string{"version": "(devel)", "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v["version"] = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v["revision"] = s.Value
			}
		}
	}
	if c.JSON {
		return json.NewEncoder(a.out).Encode(v)
	}
	return a.write(fmt.Sprintf("onceward %s %s (%s, %s)\n", v["version"], v["revision"], v["go"], v["platform"]))
}
