package onceward_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// Ids are bytes: whatever they hold, equal ones are one message and others are others.
func TestOddIDs(t *testing.T) {
	ids := []string{
		" ", "\t", "null", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10) + "y", "\x00", "a\x00", "a", "A", "a ",
		" a", "\xff\xfe", "\xff", "\u00e9", "e\u0301", "ss", "ß", "1", "01", "1.0",
	}
	for _, batch := range []int{1, 100} {
		s := memory.NewStore()
		var ms []*onceward.Message
		for range 2 {
			for _, id := range ids {
				ms = append(ms, &onceward.Message{ID: id, Body: []byte("same")})
			}
		}
		c := consumer(t, "c", memory.Messages(ms...), s, effect, onceward.Config{MaxBatch: batch})
		run(t, c)
		checkEffects(t, s, ids...)
		checkParked(t, s)
		n := int64(len(ids))
		checkStats(t, c, onceward.Stats{Received: 2 * n, Processed: n, Duplicates: n})
	}
}

func TestMessagesWithoutID(t *testing.T) {
	s := memory.NewStore()
	none := func(body string) *onceward.Message { return &onceward.Message{Body: []byte(body)} }
	c := consumer(t, "c", memory.Messages(msg("a"), none("x"), none("y"), none("x"), msg("b")), s, effect, onceward.Config{})
	run(t, c)
	checkEffects(t, s, "a", "b")
	ls := checkParked(t, s, " dead", " dead")
	checkStats(t, c, onceward.Stats{Received: 5, Processed: 2, Dead: 2, Duplicates: 1})
	for _, l := range ls {
		if !strings.Contains(l.Reason, onceward.ErrNoID.Error()) || l.Attempts != 0 {
			t.Errorf("reason %q, %d attempts", l.Reason, l.Attempts)
		}
	}
	// The same ones again, in another life.
	c = consumer(t, "c", memory.Messages(none("x"), none("y")), s, effect, onceward.Config{})
	run(t, c)
	checkParked(t, s, " dead", " dead")
	checkStats(t, c, onceward.Stats{Received: 2, Duplicates: 2})
	// Replayed, they are dead again; with an Identity that finds one, they are done.
	replay := func() {
		if n, err := s.Replay(t.Context(), onceward.Filter{Consumer: "c"}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	replay()
	c = consumer(t, "c", memory.Messages(), s, effect, onceward.Config{})
	run(t, c)
	checkParked(t, s, " dead", " dead")
	checkStats(t, c, onceward.Stats{WaitingAtStart: 2, Dead: 2})
	replay()
	c = consumer(t, "c", memory.Messages(), s, effect, onceward.Config{
		Identity: onceward.IdentifyBy(func(m *onceward.Message) (string, error) { return "by " + string(m.Body), nil }),
	})
	run(t, c)
	checkParked(t, s)
	checkEffects(t, s, "a", "b", "by x", "by y")
}

func TestConsumerThatNeverSawAnID(t *testing.T) {
	s := memory.NewStore()
	src := memory.NewSource(&onceward.Message{Body: []byte("x")}, &onceward.Message{Body: []byte("y")})
	byHeader := onceward.Config{Identity: onceward.ByHeader("Message-Id")}
	c := consumer(t, "c", src, s, effect, byHeader)
	checkErrorIs(t, start(t, c).wait(), onceward.ErrNoID)
	checkParked(t, s)
	checkStats(t, c, onceward.Stats{Received: 2, GivenBack: 2})
	if src.Pending() != 2 {
		t.Errorf("%d pending", src.Pending())
	}
	// One that has a history goes on.
	first := &onceward.Message{Headers: onceward.Headers{"Message-Id": {"a"}}}
	run(t, consumer(t, "c", memory.Messages(first), s, effect, byHeader))
	src.End()
	c = consumer(t, "c", src, s, effect, byHeader)
	run(t, c)
	checkParked(t, s, " dead", " dead")
	checkStats(t, c, onceward.Stats{Received: 2, Dead: 2})
}

// The guard against a wrong Identity does not take a failing Key for one.
func TestKeyFails(t *testing.T) {
	s := memory.NewStore()
	c := consumer(t, "c", memory.Messages(msg("a"), msg("b")), s, effect, onceward.Config{
		Key: func(m *onceward.Message) (string, error) {
			if m.ID == "a" {
				return "", errBad
			}
			return m.ID, nil
		},
		MaxBatch: 1,
	})
	run(t, c)
	checkEffects(t, s, "b")
	if ls := checkParked(t, s, "a dead"); len(ls) != 1 || !strings.Contains(ls[0].Reason, "bad") {
		t.Errorf("put aside: %v", ls)
	}
}

// What a program does to find a message's id, key or match can panic: the message is to blame, and
// the process goes on.
func TestIdentityPanics(t *testing.T) {
	s := memory.NewStore()
	c := consumer(t, "c", memory.Messages(msg("a"), msg("b")), s, effect, onceward.Config{
		Identity: onceward.IdentifyBy(func(m *onceward.Message) (string, error) {
			if m.ID == "b" {
				panic("index out of range")
			}
			return m.ID, nil
		}),
	})
	run(t, c)
	checkEffects(t, s, "a")
	if ls := checkParked(t, s, "b dead"); len(ls) != 1 || !strings.Contains(ls[0].Reason, "index out of range") {
		t.Errorf("put aside: %v", ls)
	}
}

func TestIdentities(t *testing.T) {
	m := onceward.Message{ID: "broker", Headers: onceward.Headers{"Id": {"header", "second"}}, Body: []byte(`{"p":{"id":10000000000000000001}}`)}
	for name, tt := range map[string]struct {
		by   onceward.Identity
		want string
	}{
		"message id": {onceward.ByMessageID(), "broker"},
		"header":     {onceward.ByHeader("Id"), "header"},
		"json":       {onceward.ByJSON("$.p.id"), "10000000000000000001"},
		"content":    {onceward.ByContent(), "sha256:"},
	} {
		s := memory.NewStore()
		c := consumer(t, "c", memory.Messages(&m), s, effect, onceward.Config{Identity: tt.by})
		run(t, c)
		found := false
		for k := range s.Values() {
			found = found || strings.HasPrefix(k, effectOf(tt.want))
		}
		if !found {
			t.Errorf("%s: effects %v", name, s.Values())
		}
	}
}

func TestMatch(t *testing.T) {
	s := memory.NewStore()
	src := memory.Messages(msg("a"), &onceward.Message{Topic: "other"}, msg("b"), &onceward.Message{Topic: "other", ID: "x"})
	c := consumer(t, "c", src, s, effect, onceward.Config{Match: func(m *onceward.Message) bool { return m.Topic == "" }})
	run(t, c)
	checkEffects(t, s, "a", "b")
	checkStats(t, c, onceward.Stats{Received: 4, Processed: 2, Skipped: 2})
	if src.Pending() != 0 {
		t.Errorf("%d pending", src.Pending())
	}
}

func TestStoreQueueAsSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		for _, id := range []string{"a", "b", "bad"} {
			if err := s.Put(t.Context(), onceward.Entry{Queue: "orders", Message: *msg(id), State: onceward.Waiting}); err != nil {
				t.Fatal(err)
			}
		}
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			if d.ID == "bad" {
				return errBad
			}
			return effect(ctx, tx, d)
		}
		c := consumer(t, "c", s.Queue("orders"), s, h, onceward.Config{Attempts: 3, Backoff: every(time.Second)})
		l := start(t, c)
		until(t, time.Minute, "all to be done", func() bool { return c.Stats().Dead == 1 })
		_ = s.Put(t.Context(), onceward.Entry{Queue: "orders", Message: *msg("a"), State: onceward.Waiting})
		until(t, time.Minute, "the repeat to be dropped", func() bool { return c.Stats().Duplicates == 1 })
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		checkEffects(t, s, "a", "b")
		checkStats(t, c, onceward.Stats{Received: 4, Processed: 2, Dead: 1, Duplicates: 1, Failed: 3, Retried: 2})
		if ls := checkParked(t, s, "bad dead"); ls[0].Attempts != 3 {
			t.Errorf("%d attempts", ls[0].Attempts)
		}
		if ls := rows(t, s, "orders"); len(ls) != 0 {
			t.Errorf("left in the queue: %v", ls)
		}
	})
}

// DecodeJSON's error is permanent, whatever the consumer's limits.
func TestMalformedBody(t *testing.T) {
	s := memory.NewStore()
	h := func(_ ctx, tx *memory.Tx, d *onceward.Delivery) error {
		var v struct{ A int }
		if err := d.DecodeJSON(&v); err != nil {
			return fmt.Errorf("handler: %w", err)
		}
		return errors.New("decoded")
	}
	run(t, consumer(t, "c", memory.Messages(msg("a")), s, h, onceward.Config{}))
	checkParked(t, s, "a dead")
}
