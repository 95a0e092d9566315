package onceward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// Handler handles one message. It is called again after an error, a panic or a time-out.
type Handler func(ctx context.Context, d *Delivery) error

// TxHandler handles one message within the store's transaction. It must not end tx, nor use it
// after it has returned; effects outside tx are not covered by the guarantee.
type TxHandler[TTx any] func(ctx context.Context, tx TTx, d *Delivery) error

// TxBatchHandler handles several messages, all of them fresh, within one transaction. If it returns
// an error none has taken effect; [Delivery.Fail] says whose fault it is, and without that the batch
// is split until it shows.
type TxBatchHandler[TTx any] func(ctx context.Context, tx TTx, ds []*Delivery) error

// Consumer reads a source and handles its messages under a guarantee. It is made by [AtMostOnce],
// [AtLeastOnce], [EffectivelyOnce] or [EffectivelyOnceBatch], and runs once.
type Consumer struct {
	name      string
	guarantee string
	src       Source
	cfg       Config
	log       *slog.Logger
	work      worker
	needsID   bool
	isolation *exclusion

	started atomic.Bool
	state   atomic.Uint32
	counts  counts
}

// worker is what a guarantee does with deliveries.
type worker interface {
	// ready reports whether the store can be written to, if there is one.
	ready(ctx context.Context) error
	// process sees to deliveries of the source: each is settled, kept aside or given back.
	process(l *lane, items []*item)
	// retries is the queue in which failed messages wait, nil if the source keeps them.
	retries() Queue
	// retry runs a message that waited.
	retry(l *lane, it *item)
	// known reports whether the consumer has seen an id in earlier lives.
	known(ctx context.Context) (bool, error)
	// tidy does the work of a quiet minute.
	tidy(ctx context.Context) error
}

// AtMostOnce settles a message, has that confirmed, and then handles it: it is never handled again,
// unless the broker loses its own state, and it is lost if the handler fails or the process dies.
// For metrics, logs, push notifications, cache invalidation.
//
// The name is the consumer's identity for ever. A nil c is fine.
func AtMostOnce(name string, src Source, h Handler, c *Config) (*Consumer, error) {
	if err := c.validate(name, src); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errNoHandler(name)
	}
	if c != nil {
		if err := c.refuse("AtMostOnce", map[string]bool{
			"Attempts": c.Attempts != 0, "Backoff": c.Backoff != nil, "KeepOrder": c.KeepOrder,
			"Mismatch": c.Mismatch != 0, "Queue": c.Queue != nil, "Retention": c.Retention != 0,
		}); err != nil {
			return nil, err
		}
	}
	co := newConsumer("AtMostOnce", name, src, c)
	co.work = &once{c: co, h: h}
	return co, nil
}

// AtLeastOnce handles a message and then settles it: it is never lost, and can be handled again. For
// audit events and handlers that are idempotent by themselves.
//
// Failed messages wait in Config.Queue, or are kept by the source if it can delay and dead-letter
// them; otherwise the result is an [UnsupportedError]. Messages need no id.
//
// The name is the consumer's identity for ever. A nil c is fine.
func AtLeastOnce(name string, src Source, h Handler, c *Config) (*Consumer, error) {
	if err := c.validate(name, src); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errNoHandler(name)
	}
	if c != nil {
		if err := c.refuse("AtLeastOnce", map[string]bool{
			"KeepOrder": c.KeepOrder, "Mismatch": c.Mismatch != 0, "Retention": c.Retention != 0,
		}); err != nil {
			return nil, err
		}
	}
	if caps := src.Capabilities(); (c == nil || c.Queue == nil) && (!caps.DelayedRetry || !caps.DeadLetters) {
		return nil, &UnsupportedError{
			"AtLeastOnce", src.String(), "it has no place for messages that failed",
			"set Config.Queue to a store",
		}
	}
	co := newConsumer("AtLeastOnce", name, src, c)
	co.work = &atLeast{c: co, h: h}
	return co, nil
}

// EffectivelyOnce claims a message, runs the handler and commits both in one transaction of the
// store, and then settles: within Config.Retention no message is lost, and none takes effect twice,
// whatever is redelivered, retried, published twice or killed half-way. The effect is what the
// handler does through tx. For payments, orders, ledgers.
//
// Several messages share a transaction; when one fails, the others are committed without it. A
// failed message waits in the store's queue, and ends there as a dead letter after Config.Attempts.
//
// The name is the consumer's identity for ever: under another name every message is new. A nil c is
// fine.
func EffectivelyOnce[TTx any](name string, src Source, s Store[TTx], h TxHandler[TTx], c *Config) (*Consumer, error) {
	if h == nil {
		return nil, errNoHandler(name)
	}
	return newEffectively(name, src, s, &effectively[TTx]{one: h}, c)
}

// EffectivelyOnceBatch is [EffectivelyOnce] for a handler that takes several messages at once, up to
// Config.MaxBatch.
func EffectivelyOnceBatch[TTx any](name string, src Source, s Store[TTx], h TxBatchHandler[TTx], c *Config) (*Consumer, error) {
	if h == nil {
		return nil, errNoHandler(name)
	}
	return newEffectively(name, src, s, &effectively[TTx]{many: h}, c)
}

func newEffectively[TTx any](name string, src Source, s Store[TTx], e *effectively[TTx], c *Config) (*Consumer, error) {
	if err := c.validate(name, src); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("onceward: consumer %s: the store is nil", Quote(name))
	}
	if c != nil {
		if err := c.refuse("EffectivelyOnce", map[string]bool{"Queue": c.Queue != nil}); err != nil {
			return nil, err
		}
	}
	co := newConsumer("EffectivelyOnce", name, src, c)
	co.needsID = true
	if err := co.setRetention(); err != nil {
		return nil, err
	}
	if q, ok := src.(StoreQueue); ok && any(q.Backing()) == any(s) {
		e.ownRows = true
	}
	e.c, e.store = co, s
	co.work = e
	return co, nil
}

func newConsumer(guarantee, name string, src Source, c *Config) *Consumer {
	co := &Consumer{name: name, guarantee: guarantee, src: src, cfg: c.withDefaults(), isolation: isolation}
	co.log = co.cfg.Logger.With("consumer", name)
	return co
}

// setRetention makes the inbox remember at least as long as the source may repeat a message.
func (c *Consumer) setRetention() error {
	horizon := c.src.Capabilities().Horizon
	if c.cfg.Retention == 0 {
		c.cfg.Retention = max(defaultRetention, horizon)
		if horizon == Forever {
			c.cfg.Retention = Forever
		}
	}
	if c.cfg.Retention == Forever || horizon != Forever && horizon <= c.cfg.Retention {
		return nil
	}
	may := "for ever"
	if horizon != Forever {
		may = "for " + horizon.String()
	}
	return &UnsupportedError{
		c.guarantee, c.src.String(),
		fmt.Sprintf("it may repeat a message %s, and the inbox is to forget after %s", may, c.cfg.Retention),
		"raise Config.Retention, or leave it out",
	}
}

func errNoHandler(name string) error {
	return fmt.Errorf("onceward: consumer %s: the handler is nil", Quote(name))
}

// Name is the consumer's identity.
func (c *Consumer) Name() string { return c.name }

// Check connects to the source and the store, and returns why the guarantee can't be kept with them
// as they are, or nil. It consumes nothing.
func (c *Consumer) Check(ctx context.Context) error {
	err := c.work.ready(ctx)
	if s, ok := c.src.(interface {
		Check(ctx context.Context) error
	}); ok {
		err = errors.Join(err, s.Check(ctx))
	}
	return err
}
