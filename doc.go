// Package onceward gives Go services effectively-once message processing: a message's effect happens
// once, whatever is redelivered, retried, published twice or killed half-way.
//
// # Guarantees
//
// A consumer is made by one constructor, whose name is the promise:
//
//   - [AtMostOnce] removes the message from the source, has that confirmed, and then handles it. It is
//     never handled again unless the broker loses its own state; it can be lost. The effect may go
//     anywhere.
//   - [AtLeastOnce] handles the message and then settles it. It is never lost; it can repeat. The
//     effect may go anywhere.
//   - [EffectivelyOnce] claims the message, handles it and commits in one transaction of the store,
//     which the handler receives, and then settles it. It is never lost and never repeated, within
//     retention, as far as the effect is made through that transaction.
//
// [EffectivelyOnceBatch] is the same for a handler that takes many messages at once, and [Once] for
// what does not come from a broker.
//
// # What can happen when the process dies
//
// For EffectivelyOnce, in the order of a message's way:
//
//	the process dies               the source has   the store has           what happens next
//	before the transaction begins  the message      nothing                 delivered again, handled
//	after the claim                the message      nothing (rolled back)   delivered again, handled
//	within the handler             the message      nothing (rolled back)   delivered again, handled; the start
//	                                                                        was counted if it may be a repeat
//	before COMMIT reaches it       the message      nothing (rolled back)   delivered again, handled
//	after COMMIT                   the message      record, effect, emits   delivered again, a duplicate: settled
//	after the settlement           nothing          record, effect, emits   nothing
//	while a failure is put aside   the message      all of it or nothing    delivered again: a repeat of what waits
//	                                                                        is settled, otherwise handled
//	while a waiting copy runs      nothing          its row; or the effect  the lease on the row runs out, then it
//	                                                without the row         is handled; or it is done
//
// For AtLeastOnce a death after the handler and before the settlement repeats the handler. For
// AtMostOnce a death between settlement and handler loses the message, and with it those that were
// settled in the same batch.
//
// # What is not promised
//
// What a handler does outside its transaction (an e-mail, a call to another service) can repeat after
// a crash. A record that retention has removed is forgotten: its message would be new. A store that
// does not write its commits to disk (SQLite with synchronous=NORMAL on a power cut) can lose effect
// and record after the source has forgotten the message; the stores refuse such settings where they
// can see them.
//
// # Identity
//
// A consumer is its name: what it has finished is remembered under it. Under another name, or with
// another Identity under the same name, every message is new. Nothing refuses such a change, so make
// it on purpose.
//
// A message is the same if its id is the same, byte by byte: see [ID] for how producers make them, and
// [Identity] for where consumers find them. A message without an id becomes a dead letter. The same
// id with another body is a conflict, found by a [Fingerprint]: a dead letter too, unless
// Config.Mismatch says otherwise.
//
// # Failures
//
// A handler's error, panic or time-out rolls its transaction back; the message waits in the store for
// its next attempt (Config.Backoff, or [RetryAfter]) and becomes a dead letter after Config.Attempts,
// or at once if the error is [Permanent]. Its neighbours in the batch are committed without it. A
// message that kills the process is counted before the handler starts and ends as a dead letter as
// well. When the store or the source is away the consumer pauses, and no attempt is charged.
package onceward
