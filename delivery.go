package onceward

import (
	"errors"
	"fmt"
)

// Delivery is one arrival of a message at a handler. Its methods are not safe for concurrent use,
// and have no effect once the handler has returned. A Delivery that a test makes by hand works too:
// &Delivery{Message: …}.
type Delivery struct {
	Message
	// Attempt counts the starts of the handler with this message, this one included. Starts in a
	// process that died count where the source could tell, or the message came first after a start.
	Attempt     int
	Redelivered bool     // a handler may have started with it before
	Source      string   // the source's name
	Position    Position // zero if the source is no log

	consumer string
	emitted  []emitted
	emitErr  error
	failure  error
}

type emitted struct {
	queue string
	msg   Message
}

// IdempotencyKey is the same for every attempt at this message by this consumer, and for no other:
// pass it to an API that drops repeated requests.
func (d *Delivery) IdempotencyKey() string {
	return ID(d.consumer, d.ID)
}

// Child is the id of the message that is emitted under label: the same on every attempt. It reads
// "order:42:created#shipping:label" for consumer shipping and message order:42:created.
func (d *Delivery) Child(label string) string { return child(d.ID, d.consumer, label) }

// Emit adds a message to a queue of the store, such as [Outbox], if and only if this attempt
// succeeds. Its ID becomes [Delivery.Child] of label, so that a repeated attempt emits the same
// message. A label used twice for one delivery, or what [CheckAppend] refuses, makes it a dead letter.
// m is copied; its body must not be changed before the handler returns.
func (d *Delivery) Emit(queue, label string, m *Message) {
	e := emitted{queue: queue}
	err := CheckAppend(queue)
	if m != nil {
		e.msg = *m
	} else {
		err = errors.Join(err, CheckAppend(queue, m))
	}
	e.msg.ID = d.Child(label)
	for i := range d.emitted {
		if d.emitted[i].msg.ID == e.msg.ID {
			err = Permanent(fmt.Errorf("onceward: label %s was used for two emitted messages of one delivery", Quote(label)))
		}
	}
	if d.emitErr == nil {
		d.emitErr = err
	}
	d.emitted = append(d.emitted, e)
}

// Emitted returns what was emitted so far, for tests of handlers.
func (d *Delivery) Emitted() []Message {
	ms := make([]Message, len(d.emitted))
	for i := range d.emitted {
		ms[i] = d.emitted[i].msg
	}
	return ms
}

// Fail blames this delivery of a batch for err and returns err, for the batch handler to return: the
// others are then processed without it.
func (d *Delivery) Fail(err error) error {
	if err != nil {
		d.failure = err
	}
	return err
}
