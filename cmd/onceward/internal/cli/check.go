package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/consumers"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

type checkCmd struct {
	Config string `arg:"" help:"The config file." placeholder:"CONFIG"`
	JSON   bool   `help:"Print the result as JSON, one object a line."`
}

// Run is the command. It runs the setup file, as run does, for statements need its tables.
func (c *checkCmd) Run(ctx context.Context, a *app) (err error) {
	cfg, err := config.Load(c.Config)
	if err == nil {
		err = cfg.RequireConsumers()
	}
	if err != nil {
		return err
	}
	w := &worker{cmd: &runCmd{Config: c.Config}, app: &app{in: strings.NewReader(""), out: a.out, err: a.err}, states: newStates(),
		log: slog.New(slog.DiscardHandler)}
	defer func() { err = errors.Join(err, w.close()) }()
	if w.store, err = open(cfg); err != nil {
		return err
	}
	bad := c.database(ctx, a, w.store)
	if err := w.build(ctx); err != nil {
		return errors.Join(bad, err)
	}
	errs := []error{bad}
	for _, k := range w.consumers {
		found := k.Check(ctx)
		errs = append(errs, found)
		if c.JSON {
			errs = append(errs, json1(a.out, []error{found}, func(err error) any { return newChecked(k, err) }))
		} else if found == nil {
			errs = append(errs, a.write(fmt.Sprintf("%s: %s from %s: good\n", k.Name(), k.Config.Guarantee, k.Config.Source)))
		}
	}
	return errors.Join(errs...)
}

// database reports what a look at the database has found. It is an error if a run could not work.
func (c *checkCmd) database(ctx context.Context, a *app, o *opened) error {
	r, err := o.db.Inspect(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range r.Findings {
		if f.Level == database.Error {
			errs = append(errs, fmt.Errorf("%s: %s", o.Store.Text, f))
		}
	}
	if c.JSON {
		return errors.Join(append(errs, json1(a.out, []*database.Report{r}, func(r *database.Report) any { return newDatabaseChecked(o, r) }))...)
	}
	good := ""
	if len(errs) == 0 {
		good = ": good"
	}
	errs = append(errs, a.write(fmt.Sprintf("%s: %s%s\n", o.Store.Text, r.Server, good)))
	for _, f := range r.Findings {
		if f.Level != database.Error { // those come with the error
			errs = append(errs, a.write(fmt.Sprintf("%s: %s: %s\n", o.Store.Text, f.Level, f)))
		}
	}
	return errors.Join(errs...)
}

type databaseChecked struct {
	Store    string    `json:"store"`
	Server   string    `json:"server"`
	Good     bool      `json:"good"`
	Findings []finding `json:"findings"`
}

type finding struct {
	Level database.Level `json:"level"`
	What  string         `json:"what"`
	Cure  string         `json:"cure,omitempty"`
}

func newDatabaseChecked(o *opened, r *database.Report) databaseChecked {
	c := databaseChecked{Store: o.Store.Text, Server: r.Server, Good: true, Findings: []finding{}}
	for _, f := range r.Findings {
		c.Good = c.Good && f.Level != database.Error
		c.Findings = append(c.Findings, finding(f))
	}
	return c
}

type checked struct {
	Consumer string `json:"consumer"`
	Good     bool   `json:"good"`
	Error    string `json:"error,omitempty"`
}

func newChecked(k *consumers.Consumer, err error) checked {
	c := checked{Consumer: k.Name(), Good: err == nil}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}
