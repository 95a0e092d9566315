package onceward

import (
	"encoding/json"
	"fmt"
	"time"
)

// Message is what a producer sends and a consumer handles.
type Message struct {
	// ID is the message's identity, compared byte by byte: no trimming, folding or cutting. A
	// message that is sent again must carry the same ID, and no other message may: see [ID].
	ID string
	// Topic is the destination: a Kafka topic, NATS subject, RabbitMQ routing key or queue name.
	Topic string
	// Key orders: messages of one key share a lane. Empty means unordered.
	Key     string
	Headers Headers
	Body    []byte
	// Time is when the message was produced. Zero lets the store or broker fill in its own clock.
	Time time.Time
}

// DecodeJSON parses the body into v. Its error is [Permanent]: a body that is not the expected JSON
// now will not be on the next attempt either.
func (m *Message) DecodeJSON(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return Permanent(fmt.Errorf("onceward: decode body of message %s: %w", Quote(m.ID), err))
	}
	return nil
}

// Headers are a message's metadata. Values may repeat, and names and values are kept as they are:
// no case folding, any bytes.
type Headers map[string][]string

// Get returns the first value of name, or "".
func (h Headers) Get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set replaces the values of name by value. h must not be nil.
func (h Headers) Set(name, value string) { h[name] = []string{value} }
