package onceward

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file has what authors of stores and sources implement. The suites in packages storetest and
// brokertest say what each method must do, and check it.

// ───── Sources ─────

// Source is what a consumer reads: a queue, a topic, a file. Subscribe may be called again after a
// session ended, and by several consumers at once.
type Source interface {
	// Subscribe opens a session. An error marked [Permanent] ends the consumer; after any other the
	// consumer pauses and tries again.
	Subscribe(ctx context.Context, p SubscribeParams) (Session, error)
	// Capabilities are static: what the kind of source can do.
	Capabilities() Capabilities
	// String names the source for logs. It holds no secret.
	String() string
}

// SubscribeParams are what a consumer asks of a session.
type SubscribeParams struct {
	Consumer string // the consumer's name, for a source that keeps its place per consumer
	Prefetch int    // how many unsettled deliveries the consumer will hold
	// Claim is set if the consumer deduplicates by position. The session calls it for each partition
	// that it gains, before it delivers anything of it: gained has Log and Partition, and Next as far as
	// the broker knows it. The session then reads from the Next that comes back, in order, without
	// skipping, whatever the broker has stored, and puts the Epoch that comes back into the
	// [Incoming.Position] of every delivery. Next 0 means that nothing is stored yet: the session begins
	// where the source would, and that is never the end. Claim may wait for a transaction of the former
	// owner. After its error the session delivers nothing of those partitions.
	Claim func(ctx context.Context, gained []Position) (from []Position, err error)
}

// Session is one connection's, one channel's or one assignment's worth of deliveries. Receive is
// called by one goroutine; Settle may be called by several at once, also while Receive waits.
type Session interface {
	// Receive waits for at least one delivery and returns at most max, or fewer where the bodies are
	// large. [io.EOF] means that the source has ended and nothing will come; ctx's error that it
	// ended first. After any other error the consumer closes the session and subscribes again,
	// unless the error is [Permanent].
	Receive(ctx context.Context, max int) ([]Incoming, error)
	// Settle tells the source what became of deliveries of this session. It returns once the source
	// has confirmed, or an error: [ErrStale] where the session no longer owns the delivery, which
	// then never reaches the broker. A source whose acknowledgements are cumulative must not let one
	// cover a delivery that is not settled yet.
	Settle(ctx context.Context, s ...Settlement) error
	// Close gives back what is not settled, and frees what the session holds.
	Close(ctx context.Context) error
}

// Incoming is a delivery as the source hands it over.
type Incoming struct {
	Message
	Position Position
	// Redelivered says that a handler may have started with this message before.
	Redelivered bool
	// Attempts is how many starts of the handler the source knows of: the Settlement.Attempts that
	// came with the last Requeue, 0 if it keeps none.
	Attempts int
	// Row is set by a source that is a queue of a store.
	Row *Row
	// Receipt is the session's own. If it has a String method, a dead letter quotes it as the place
	// where the message came from.
	Receipt any
}

// Settlement is what became of a delivery.
type Settlement struct {
	Incoming
	Verdict  Verdict
	After    time.Duration // Requeue: not before
	Attempts int           // Requeue: for the next Incoming.Attempts, if the source can keep it
	Reason   error         // Reject: why
}

// Verdict says what a source, or a queue, is to do with a delivery.
type Verdict uint8

// The verdicts.
const (
	Ack     Verdict = iota + 1 // done: forget it
	Requeue                    // deliver it again, after Settlement.After
	Reject                     // dead-letter it
)

// Position is a place in a source that is a log.
type Position struct {
	Log       string // which log, with its creation identity; empty: the source is no log
	Partition int32
	Next      int64 // where to go on after this message
	Epoch     int64 // fences an owner that has been replaced
}

func (p Position) String() string {
	if p.Log == "" {
		return ""
	}
	return fmt.Sprintf("%s[%d]@%d", p.Log, p.Partition, p.Next)
}

// Capabilities are what a kind of source can do.
type Capabilities struct {
	// Hints: Incoming.Redelivered is set on every delivery that a handler may have started with.
	Hints bool
	// DelayedRetry: Requeue honours After and keeps the message.
	DelayedRetry bool
	// DeadLetters: Reject keeps the message where a person can find it.
	DeadLetters bool
	// Positions: the source is a log that can be read in order from a stored position, and every
	// delivery has its Position. Only such a source can be read by position, with SubscribeParams.Claim.
	Positions bool
	// Horizon is how long after its first delivery a message may still be delivered again; zero:
	// only until it is settled; [Forever]: always, as from a file that is read anew.
	Horizon time.Duration
}

// StoreQueue is a source that is a queue of a store. A consumer that uses the same store deletes the
// row in the effect's transaction.
type StoreQueue interface {
	Source
	Backing() Queue
}

// Publisher sends messages to a broker. Its methods may be called by several goroutines at once.
type Publisher interface {
	// Publish sends messages in their order, as persistent ones, and waits until the broker has confirmed
	// each as stored and routed: then it returns nil, else a *[PublishError]. When ctx ends, those
	// without a confirmation are in doubt. It connects, and connects again, by itself.
	Publish(ctx context.Context, msgs ...*Message) error
	// Close ends the connection. What is not confirmed by then is in doubt.
	Close(ctx context.Context) error
}

// PublishError names the messages, by index, that were not confirmed. The others were.
type PublishError struct {
	// Failed: the broker does not have them. An error marked [Permanent] will come again however often
	// this message is sent: it is too large, can't be routed, has a header that the broker can't carry.
	Failed map[int]error
	// InDoubt: unknown, for the answer was lost. Send them again with the same id.
	InDoubt map[int]error
}

func (e *PublishError) Error() string {
	for _, m := range []map[int]error{e.Failed, e.InDoubt} {
		for _, err := range m {
			return fmt.Sprintf("onceward: publish: %d failed, %d in doubt, one of them: %v", len(e.Failed), len(e.InDoubt), err)
		}
	}
	return "onceward: publish failed"
}

// ───── Stores ─────

// Store keeps the inbox, the queues and the positions, and runs transactions of the type that its
// users write SQL with. Only constructors ask for all of it.
//
// Every method without a transaction is a transaction of its own: done when it returns nil, and with
// an error either undone or [ErrInDoubt]. Methods are safe for concurrent use, and end early when
// ctx ends. Time is the database's clock: durations are sent, never due times.
type Store[TTx any] interface {
	Transactor[TTx]
	Inbox[TTx]
	Appender[TTx]
	Positions[TTx]
	Queue
	Inspector
}

// Transactor runs transactions.
type Transactor[TTx any] interface {
	// InTx begins a transaction, calls fn once, and commits if fn returns nil. If fn returns an
	// error, or panics, it rolls back and returns an error that wraps fn's. When ctx ends, the
	// transaction is rolled back at once, even if fn does not return, and later use of tx fails.
	//
	// Beside fn's own error it reports, testable with errors.Is: [ErrConflict], [ErrUnavailable],
	// [ErrInDoubt] (the commit may have happened), [ErrTxEnded] and [ErrTxEscaped] (fn ended the
	// transaction; found out whatever fn returned).
	InTx(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error
	// Ready performs a trivial write on a fresh connection, which tells an outage from a message's
	// fault. It returns [ErrNoSchema] where the tables are missing or of another version (permanent),
	// an error marked [Permanent] where no waiting can help (a read-only database), and
	// [ErrUnavailable] otherwise.
	Ready(ctx context.Context) error
	// Guarded reports whether a handler that ends its transaction is stopped from doing so, or from
	// committing anything by it. Only then are claims taken ahead of the handlers of a batch.
	Guarded() bool
}

// Inbox keeps which consumer has finished which message. It holds finished messages only.
type Inbox[TTx any] interface {
	// Claim records in tx that consumer has finished the messages of rs, and says for each what was
	// found, in the order of rs. The insert is the claim: only what it returns decides. A message in
	// another transaction's hands makes it wait, for a bounded time, and then fail with [ErrBusy].
	// No two of rs have the same ID. See [Found] for what it leaves behind in each case.
	Claim(ctx context.Context, tx TTx, consumer string, rs []Record) ([]Found, error)
	// Park puts messages aside in the queue [Retries], as waiting or dead. In one transaction it
	// takes each claim first, so that a message which is done or in another transaction's hands is
	// not parked, writes the row, and gives the claim back. See [Parking].
	Park(ctx context.Context, consumer string, ps []Parking) ([]Found, error)
	// Attempt counts durably that a handler is about to start with a message that may be a repeat,
	// and returns how many starts have been counted, this one included. The count is kept until the
	// message turns out to be finished or put aside, by a claim or by parking with Record.Counted. A message with a Row is counted by [Queue].Start instead.
	Attempt(ctx context.Context, consumer string, r Record) (int, error)
	// Recorded looks up which messages are in the inbox. It decides nothing: a claim does.
	Recorded(ctx context.Context, consumer string, rs []Record) ([]bool, error)
	// Known reports whether consumer has any record in the inbox.
	Known(ctx context.Context, consumer string) (bool, error)
	// Purge removes at most limit inbox records of consumer, and counts of Attempt, that are older
	// than keep; with [Forever] only counts older than [KeepCounts]. It never removes the record of a message that still has a row in the queue Retries.
	// It returns how many it removed; fewer than limit means that it has come round.
	Purge(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error)
}

// KeepCounts is how long a count of Attempt is kept for a consumer that never forgets.
const KeepCounts = 7 * 24 * time.Hour

// Record is what the inbox needs of a message.
type Record struct {
	ID          string // as [StoredID] gives it
	Fingerprint int64  // as [Fingerprint] gives it; 0: not compared
	// OrderKey is the message's key under KeepOrder, else empty.
	OrderKey string
	// Row is the delivery's own row, if it came from a queue of this store.
	Row *Row
	// Counted says that Attempt was called for it: the count goes with the claim.
	Counted bool
}

// Found is what a claim, or parking, came upon.
type Found uint8

// What a claim can find.
const (
	// Fresh: not finished before. Claim has inserted the record, and deleted Record.Row and the count
	// of Attempt. Park has written the row.
	Fresh Found = iota + 1
	// Duplicate: finished before. Claim and Park have deleted Record.Row.
	Duplicate
	// OtherBody: finished before with another fingerprint. Claim has left Record.Row. Park has written
	// the row all the same if it is to be dead; to let it wait, it has done nothing.
	OtherBody
	// Parked: a row of the queue Retries other than Record.Row has the same consumer, id and
	// fingerprint, waiting or dead. Claim and Park have deleted Record.Row, and recorded nothing.
	Parked
	// Held: an earlier row of the same consumer and OrderKey waits in the queue Retries. Claim has
	// recorded nothing and left Record.Row. Park never says so.
	Held
	// Lost: Record.Row is not ours any more (sequence and fence do not match). Nothing was recorded.
	Lost
	// Busy: in another transaction's hands. Only Park says so, and it has done nothing with it.
	Busy
)

// Parking is a message to put aside. If Record.Row is set, that row becomes the parked one, keeping
// its sequence; else a new row is written. At most one row of the queue Retries exists per consumer,
// id and fingerprint.
type Parking struct {
	Record
	Message  Message
	Dead     bool
	After    time.Duration // waiting: not before; 0: at once
	Attempts int           // handler starts so far
	Reason   string        // the last error
	Origin   string        // where the message came from
}

// Row names a row of a queue and the lease on it.
type Row struct {
	Seq   int64
	Fence int64
}

// Appender writes messages into queues within a transaction.
type Appender[TTx any] interface {
	// Append puts messages into a queue; they become visible if tx commits. A message whose id
	// already waits in that queue is left alone. See [CheckAppend] for what is refused.
	Append(ctx context.Context, tx TTx, queue string, msgs ...*Message) error
}

// CheckAppend is what every Append refuses: a queue without a name, [Retries], which only consumers
// fill, a nil message, and a message without an id.
func CheckAppend(queue string, msgs ...*Message) error {
	switch queue {
	case "":
		return Permanent(errors.New("onceward: a queue needs a name"))
	case Retries:
		return Permanent(fmt.Errorf("onceward: nobody reads from the queue %s but the consumers that fill it; use another name", Retries))
	}
	for _, m := range msgs {
		switch {
		case m == nil:
			return Permanent(errors.New("onceward: the message is nil"))
		case m.ID == "":
			return ErrNoID
		}
	}
	return nil
}

// Positions keeps where consumers are in sources that are logs.
type Positions[TTx any] interface {
	// TakeOver makes the caller the owner of partitions, given by Log and Partition: it raises their
	// epochs, which fences former owners, waiting for transactions in flight, and returns where to go
	// on (Next is 0 where nothing is stored).
	TakeOver(ctx context.Context, consumer string, ps []Position) ([]Position, error)
	// Advance stores Next for each position in tx; [ErrStale] if the epoch is not the stored one.
	Advance(ctx context.Context, tx TTx, consumer string, ps []Position) error
}

// Queue is the messages that wait in a store: those a program puts into named queues, and, in the
// queue [Retries], those that consumers have put aside.
type Queue interface {
	// Put writes entries; one whose id waits there already (in the queue Retries: with the same
	// consumer and body) is left alone. In the queue Retries a message may have no id; such a
	// one is always written. Elsewhere that is [ErrNoID].
	Put(ctx context.Context, es ...Entry) error
	// Lease takes up to p.Max rows that are due, oldest first, for p.For: until then, or until
	// Finish, nobody else gets them.
	Lease(ctx context.Context, p LeaseParams) ([]Leased, error)
	// Start counts durably that a handler is about to start with a leased row, and returns how many
	// starts have been counted, this one included; [ErrLeaseLost] if the row is not ours any more.
	Start(ctx context.Context, row Row) (int, error)
	// Finish says what became of leased rows: Ack deletes, Requeue makes the row due again after
	// After, Reject makes it a dead letter. It does what it can, and returns [ErrLeaseLost] if some
	// were no longer leased with that fence; those are untouched.
	Finish(ctx context.Context, os ...Outcome) error
	// Wait returns when rows may have come into the queue: at a signal from this process, or after a
	// polling interval of the store's choice, at most a second.
	Wait(ctx context.Context, queue string) error
}

// Names of queues.
const (
	Outbox  = "outbox"  // messages to publish
	Retries = "retries" // what consumers have put aside: retries and dead letters
)

// Entry is a row of a queue.
type Entry struct {
	Queue    string
	Consumer string // in the queue Retries: whose
	Message  Message
	State    EntryState
	Attempts int           // handler starts so far
	Due      time.Duration // how long until it is due; Put: from now; List: at most 0 if due
	Reason   string        // the last error
	Origin   string        // where the message came from
}

// EntryState is the state of a row.
type EntryState uint8

// The states of a row.
const (
	Waiting EntryState = iota + 1
	InHand             // leased
	Dead
)

func (s EntryState) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case InHand:
		return "in hand"
	case Dead:
		return "dead"
	}
	return "unknown"
}

// LeaseParams say which rows to lease.
type LeaseParams struct {
	Queue    string
	Consumer string // Retries: whose
	Max      int
	For      time.Duration
	// KeepOrder leaves a row alone while an earlier one of the same key waits or is in hand.
	KeepOrder bool
}

// Leased is a row as Lease and List return it.
type Leased struct {
	Entry
	Row
	StoredID string // as the inbox would keep its id; a message without an id has one too
	// Redelivered: it was leased before.
	Redelivered bool
	Age         time.Duration // since it was written
}

// Outcome is what became of a leased row.
type Outcome struct {
	Row
	Verdict Verdict
	After   time.Duration
	Reason  string
}

// ───── Operators ─────

// Inspector is what operators use: the program's commands, a dashboard, a script.
type Inspector interface {
	// Stats counts rows of all queues, per queue and consumer. Finished messages are not counted.
	Stats(ctx context.Context) ([]QueueStats, error)
	// List returns rows in order of Seq; set After to the last Seq seen to go on. An empty filter
	// lists everything.
	List(ctx context.Context, f Filter) ([]Leased, error)
	// Replay makes dead rows wait again, due at once, with no attempt counted; it returns how many.
	// Rows in another state are left alone. An empty filter is [ErrNoFilter].
	Replay(ctx context.Context, f Filter) (int, error)
	// Discard deletes dead rows for good, and records those of a consumer as finished, so that a
	// repeat is a duplicate. Where the id was finished before with another body, bodies are not
	// compared for it any more. An empty filter is [ErrNoFilter].
	Discard(ctx context.Context, f Filter) (int, error)
	// Explain tells what the store knows about a message id, oldest first: when which consumer
	// finished it, where it waits, and what it emitted.
	Explain(ctx context.Context, id string) ([]Trace, error)
	// Forget deletes inbox records, and counts of Attempt, so that these messages are processed again when they come again;
	// it returns how many there were.
	Forget(ctx context.Context, consumer string, ids ...string) (int, error)
}

// Filter selects rows; its set fields must all match. Queue, Consumer and ID match exactly.
type Filter struct {
	Queue, Consumer, ID string
	Reason              string // a part of the row's reason
	Seqs                []int64
	State               EntryState
	After               int64 // only rows with a higher Seq
	Limit               int   // defaults to 100 for List, and to no limit for Replay and Discard
}

// Empty reports whether f selects everything.
func (f *Filter) Empty() bool {
	return f.Queue == "" && f.Consumer == "" && f.ID == "" && f.Reason == "" && len(f.Seqs) == 0
}

// QueueStats counts the rows of a queue.
type QueueStats struct {
	Queue, Consumer       string
	Waiting, InHand, Dead int64
	Oldest                time.Duration // age of the oldest row that waits or is in hand
}

// Trace is one thing that is known about a message.
type Trace struct {
	What     string // "finished", "waiting", "in hand", "dead", or the same with "emitted, " before
	Queue    string // where it waits
	Consumer string
	ID       string
	At       time.Time
	Reason   string
}
