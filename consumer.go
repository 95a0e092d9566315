package onceward

import (
	"context"
)

// Handler handles one message. It is called again after an error, a panic or a time-out.
type Handler func(ctx context.Context, d *Delivery) error

// TxHandler handles one message within the store's transaction. It must not end tx, nor use it
// after it has returned.
type TxHandler[TTx any] func(ctx context.Context, tx TTx, d *Delivery) error

// TxBatchHandler handles several messages, all fresh, within one transaction.
type TxBatchHandler[TTx any] func(ctx context.Context, tx TTx, ds []*Delivery) error

// State is what a consumer is doing.
type State uint8

// The states of a consumer.
const (
	Starting State = iota
	Running
	Paused // the source or the store is away; it goes on by itself
	Draining
	Stopped
)

func (s State) String() string {
	return [...]string{"starting", "running", "paused", "draining", "stopped"}[min(s, Stopped)]
}

// Stats are counts since the consumer was made. Once it has stopped,
// Received + WaitingAtStart = Processed + Duplicates + Skipped + Dead + Waiting + GivenBack.
type Stats struct {
	State          State
	Received       int64 // deliveries from the source
	WaitingAtStart int64 // messages that waited for a retry when it started
	Processed      int64 // effects committed
	Duplicates     int64 // dropped: finished, dead or waiting already
	Skipped        int64 // not matched by Config.Match
	Dead           int64 // became dead letters
	Waiting        int64 // wait for a retry now
	GivenBack      int64 // not settled: will be delivered again
	Failed         int64 // handler calls that failed
	Retried        int64 // handler calls with a message that waited
}

// Consumer reads a source and handles its messages under a guarantee.
type Consumer struct {
	name string
}
