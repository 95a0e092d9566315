package onceward

import "sync/atomic"

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
	Processed      int64 // took effect (AtMostOnce: were handled, however that ended)
	Duplicates     int64 // dropped: finished, dead or waiting already
	Skipped        int64 // not matched by Config.Match
	Dead           int64 // became dead letters
	Waiting        int64 // put aside and not finished since, as far as this consumer knows
	GivenBack      int64 // not settled: will be delivered again
	Failed         int64 // handler calls that failed
	Retried        int64 // handler calls with a message that had waited
}

type counts struct {
	received, waitingAtStart, processed, duplicates, skipped atomic.Int64
	dead, givenBack, failed, retried                         atomic.Int64
	waiting                                                  atomic.Int64 // may be below 0: see Stats
}

// Stats returns the current counts. It is safe for concurrent use.
func (c *Consumer) Stats() Stats {
	n := &c.counts
	s := Stats{
		State:    State(c.state.Load()), //nolint:gosec // set from a State only
		Received: n.received.Load(), WaitingAtStart: n.waitingAtStart.Load(), Processed: n.processed.Load(),
		Duplicates: n.duplicates.Load(), Skipped: n.skipped.Load(), Dead: n.dead.Load(),
		Waiting: n.waiting.Load(), GivenBack: n.givenBack.Load(), Failed: n.failed.Load(),
		Retried: n.retried.Load(),
	}
	if s.Waiting < 0 { // put aside by another process, and not counted here as waiting: it has come from there
		s.Received -= s.Waiting
		s.Waiting = 0
	}
	return s
}

// resolved counts the end of an item: a message that waited leaves the number of those that wait.
func (n *counts) resolved(it *item, as *atomic.Int64) {
	as.Add(1)
	if it.waited {
		n.waiting.Add(-1)
	}
}
