package onceward

import "context"

func AtMostOnce(name string, src Source, h Handler, c *Config) (*Consumer, error) { panic("stub") }
func AtLeastOnce(name string, src Source, h Handler, c *Config) (*Consumer, error) { panic("stub") }
func EffectivelyOnce[TTx any](name string, src Source, s Store[TTx], h TxHandler[TTx], c *Config) (*Consumer, error) {
	panic("stub")
}
func EffectivelyOnceBatch[TTx any](name string, src Source, s Store[TTx], h TxBatchHandler[TTx], c *Config) (*Consumer, error) {
	panic("stub")
}

// Once: fn runs in a transaction unless name has consumed id.
func Once[TTx any](ctx context.Context, s Store[TTx], name, id string, fn func(ctx context.Context, tx TTx) error) (ran bool, err error) {
	panic("stub")
}

// Run blocks: nil after a clean drain (ctx ended) or the source's end.
func (c *Consumer) Run(ctx context.Context) error { panic("stub") }

// Check connects and refuses what can't be kept.
func (c *Consumer) Check(ctx context.Context) error { panic("stub") }
func (c *Consumer) Stats() Stats                    { panic("stub") }
func (c *Consumer) Name() string                    { panic("stub") }

type Runner interface {
	Run(ctx context.Context) error
}

// Run runs all until ctx ends or one fails; joins errors.
func Run(ctx context.Context, rs ...Runner) error { panic("stub") }
