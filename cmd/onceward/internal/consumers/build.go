package consumers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
	"github.com/onceward/onceward/cmd/onceward/internal/handlers"
	"github.com/onceward/onceward/cmd/onceward/internal/sources"
)

// Store is what the program needs of a store: all of it, and its queues as sources.
type Store interface {
	onceward.Store[*sql.Tx]
	Queue(name string) onceward.StoreQueue
}

// Consumer is a consumer together with what it was made of.
type Consumer struct {
	*onceward.Consumer
	Config   *config.Consumer
	Progress *sources.Progress // nil if the source is a queue

	handler *handlers.SQL
}

// Params are what consumers are made of.
type Params struct {
	Config *config.Config
	DB     *database.Database
	Store  Store
	Stdin  io.Reader
	Logger *slog.Logger
	Hooks  *onceward.Hooks
}

// Build makes the consumers of a config. What the database refuses of their statements, and what
// their guarantees refuse of their sources, are errors that name the field. Close frees them.
func Build(ctx context.Context, p Params) ([]*Consumer, error) {
	var all []*Consumer
	var errs []error
	for _, k := range p.Config.Consumers {
		c, err := build(ctx, &p, k)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, c)
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, Close(all))...)
	}
	return all, nil
}

// Close frees what Build has made.
func Close(all []*Consumer) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.handler.Close())
	}
	return errors.Join(errs...)
}

func build(ctx context.Context, p *Params, k *config.Consumer) (*Consumer, error) {
	h, err := handlers.NewSQL(ctx, p.DB, &k.Handler)
	if err != nil {
		return nil, statementError(p, k, err)
	}
	c := &Consumer{Config: k, handler: h}
	src := c.source(p)
	if c.Consumer, err = construct(p, k, src, h); err != nil {
		return nil, errors.Join(refusal(p.Config, k, err), h.Close())
	}
	return c, nil
}

// statementError names the statement. The database's own trouble is no fault of the config.
func statementError(p *Params, k *config.Consumer, err error) error {
	if st, ok := errors.AsType[*handlers.StatementError](err); ok && p.DB.Fault(st.Err) {
		field := fmt.Sprintf("%s.sql[%d].run", k.Field("handler"), st.Index)
		return p.Config.ErrorAt(k.Handler.Statements[st.Index].Line, field, "the database refuses it: %s", p.DB.Refusal(st.Err))
	}
	return fmt.Errorf("consumer %s: prepare its statements: %w", k.Name, err)
}

func refusal(cfg *config.Config, k *config.Consumer, err error) error {
	if u, ok := errors.AsType[*onceward.UnsupportedError](err); ok {
		return cfg.Errorf(k.Field("guarantee"), "%s can't be kept with %s: %s; %s", k.Guarantee, u.Component, u.Reason, u.Cure)
	}
	return cfg.Errorf(k.Field("name"), "%v", err)
}

// source makes the consumer's source, and its progress if it has one.
func (c *Consumer) source(p *Params) onceward.Source {
	switch s := c.Config.Source; s.Kind {
	case config.File:
		f := sources.NewFile(s.Path, s.Name)
		if c.Config.Guarantee != config.EffectivelyOnce {
			f = sources.NewResumingFile[*sql.Tx](s.Path, s.Name, p.Store, c.Config.Guarantee == config.AtMostOnce)
		}
		c.Progress = f.Progress()
		return f
	case config.Stdin:
		in := sources.NewStdin(p.Stdin)
		c.Progress = in.Progress()
		return in
	default:
		return p.Store.Queue(s.Name)
	}
}

func construct(p *Params, k *config.Consumer, src onceward.Source, h *handlers.SQL) (*onceward.Consumer, error) {
	c := settings(p, k)
	alone := func(ctx context.Context, d *onceward.Delivery) error {
		return p.Store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return h.Handle(ctx, tx, d) })
	}
	switch k.Guarantee {
	case config.AtMostOnce:
		return onceward.AtMostOnce(k.Name, src, alone, c)
	case config.AtLeastOnce:
		c.Identity = identity(k.ID)
		c.Queue = p.Store
		return onceward.AtLeastOnce(k.Name, src, alone, c)
	}
	c.Identity = identity(k.ID)
	return onceward.EffectivelyOnce(k.Name, src, p.Store, h.Handle, c)
}

func settings(p *Params, k *config.Consumer) *onceward.Config {
	s := k.Settings
	c := &onceward.Config{
		Attempts:  s.Attempts,
		Hooks:     p.Hooks,
		KeepOrder: s.KeepOrder,
		Lanes:     s.Lanes,
		Logger:    p.Logger,
		Match:     match(k.Match),
		MaxBatch:  s.MaxBatch,
		Retention: s.Retention,
		Timeout:   s.Timeout,
	}
	if k.Key != nil {
		c.Key = func(m *onceward.Message) (string, error) { return pick(k.Key, m) }
	}
	if k.Guarantee == config.EffectivelyOnce && k.Source.Kind == config.Stdin && s.Retention == 0 {
		c.Retention = onceward.Forever // the same text can be piped in again at any time
	}
	if s.Mismatch == "duplicate" {
		c.Mismatch = onceward.MismatchDuplicate
	}
	if s.BackoffFirst > 0 || s.BackoffMost > 0 {
		c.Backoff = backoff(s)
	}
	return c
}

// backoff fills in what one of the two leaves open.
func backoff(s config.Settings) func(int) time.Duration {
	first, most := s.BackoffFirst, s.BackoffMost
	if first == 0 {
		first = min(time.Second, most)
	}
	if most == 0 {
		most = max(10*time.Minute, first)
	}
	return onceward.ExponentialBackoff(first, most)
}
