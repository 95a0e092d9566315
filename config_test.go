package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

// build makes a consumer under each guarantee.
func build(guarantee string, src onceward.Source, c *onceward.Config) (*onceward.Consumer, error) {
	plain := func(context.Context, *onceward.Delivery) error { return nil }
	switch guarantee {
	case "AtMostOnce":
		return onceward.AtMostOnce("c", src, plain, c)
	case "AtLeastOnce":
		return onceward.AtLeastOnce("c", src, plain, c)
	case "EffectivelyOnceBatch":
		return onceward.EffectivelyOnceBatch("c", src, memory.NewStore(), func(ctx, *memory.Tx, []*onceward.Delivery) error { return nil }, c)
	}
	return onceward.EffectivelyOnce("c", src, memory.NewStore(), effect, c)
}

var guarantees = []string{"AtMostOnce", "AtLeastOnce", "EffectivelyOnce", "EffectivelyOnceBatch"}

func TestFieldsWithoutEffectAreRefused(t *testing.T) {
	fields := map[string]onceward.Config{
		"Attempts":  {Attempts: 3},
		"Backoff":   {Backoff: every(0)},
		"Grace":     {Grace: time.Second},
		"Hooks":     {Hooks: &onceward.Hooks{}},
		"Identity":  {Identity: onceward.ByContent()},
		"Key":       {Key: func(*onceward.Message) (string, error) { return "", nil }},
		"KeepOrder": {KeepOrder: true},
		"Lanes":     {Lanes: 2},
		"Logger":    {Logger: quiet},
		"Match":     {Match: func(*onceward.Message) bool { return true }},
		"MaxBatch":  {MaxBatch: 2},
		"Mismatch":  {Mismatch: onceward.MismatchDuplicate},
		"Queue":     {Queue: memory.NewStore()},
		"Retention": {Retention: time.Hour},
		"Timeout":   {Timeout: time.Second},
	}
	refused := map[string]string{
		"AtMostOnce":           "Attempts Backoff KeepOrder Mismatch Queue Retention",
		"AtLeastOnce":          "KeepOrder Mismatch Retention",
		"EffectivelyOnce":      "Queue",
		"EffectivelyOnceBatch": "Queue",
	}
	for _, g := range guarantees {
		for field, cfg := range fields {
			_, err := build(g, memory.NewSource(), &cfg)
			want := strings.Contains(" "+refused[g]+" ", " "+field+" ")
			if want != (err != nil) || want && !strings.Contains(err.Error(), "Config."+field) {
				t.Errorf("%s with %s: %v", g, field, err)
			}
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	for field, cfg := range map[string]onceward.Config{
		"Attempts":  {Attempts: -2},
		"Grace":     {Grace: -1},
		"Lanes":     {Lanes: -1},
		"MaxBatch":  {MaxBatch: -1},
		"Mismatch":  {Mismatch: 7},
		"Retention": {Retention: -2},
		"Timeout":   {Timeout: -1},
	} {
		if _, err := build("EffectivelyOnce", memory.NewSource(), &cfg); err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, cfg := range []onceward.Config{{Lanes: math.MaxInt}, {MaxBatch: math.MaxInt}} {
		if _, err := build("EffectivelyOnce", memory.NewSource(), &cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	for _, g := range guarantees {
		if _, err := build(g, memory.NewSource(), nil); err != nil {
			t.Errorf("%s without a Config: %v", g, err)
		}
		if _, err := build(g, memory.NewSource(), &onceward.Config{}); err != nil {
			t.Errorf("%s with an empty Config: %v", g, err)
		}
		if _, err := build(g, nil, nil); err == nil {
			t.Errorf("%s took a nil source", g)
		}
	}
	src, s := memory.NewSource(), memory.NewStore()
	for what, err := range map[string]error{
		"nil handler":             second(onceward.EffectivelyOnce[*memory.Tx]("c", src, s, nil, nil)),
		"nil batch handler":       second(onceward.EffectivelyOnceBatch[*memory.Tx]("c", src, s, nil, nil)),
		"nil at-least handler":    second(onceward.AtLeastOnce("c", src, nil, nil)),
		"nil at-most handler":     second(onceward.AtMostOnce("c", src, nil, nil)),
		"nil store":               second(onceward.EffectivelyOnce("c", src, nil, effect, nil)),
		"no name":                 second(onceward.EffectivelyOnce("", src, s, effect, nil)),
		"a name of 201 bytes":     second(onceward.EffectivelyOnce(strings.Repeat("x", 201), src, s, effect, nil)),
		"no handler and no store": second(onceward.EffectivelyOnce[*memory.Tx]("c", nil, nil, nil, nil)),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func second(_ *onceward.Consumer, err error) error { return err }

func TestRetentionAgainstHorizon(t *testing.T) {
	for _, tt := range []struct {
		horizon, retention time.Duration
		ok                 bool
	}{
		{0, 0, true}, {0, time.Hour, true}, {time.Hour, time.Hour, true}, {time.Hour, time.Minute, false},
		{90 * 24 * time.Hour, 0, true}, {90 * 24 * time.Hour, 30 * 24 * time.Hour, false},
		{onceward.Forever, 0, true}, {onceward.Forever, time.Hour, false}, {onceward.Forever, onceward.Forever, true},
		{time.Hour, onceward.Forever, true},
	} {
		src := memory.NewSource()
		src.Horizon = tt.horizon
		_, err := build("EffectivelyOnce", src, &onceward.Config{Retention: tt.retention})
		var unsupported *onceward.UnsupportedError
		if tt.ok != (err == nil) || err != nil && !errors.As(err, &unsupported) {
			t.Errorf("horizon %v, retention %v: %v", tt.horizon, tt.retention, err)
		}
	}
}

func TestAtLeastOnceNeedsAPlaceForFailures(t *testing.T) {
	for _, tt := range []struct {
		noDelay, noDead, queue, ok bool
	}{
		{false, false, false, true}, {true, false, false, false}, {false, true, false, false}, {true, true, true, true},
	} {
		src := memory.NewSource()
		src.NoDelayedRetry, src.NoDeadLetters = tt.noDelay, tt.noDead
		cfg := &onceward.Config{}
		if tt.queue {
			cfg.Queue = memory.NewStore()
		}
		_, err := build("AtLeastOnce", src, cfg)
		var unsupported *onceward.UnsupportedError
		if tt.ok != (err == nil) || err != nil && !errors.As(err, &unsupported) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memory.NewStore()
		var mu sync.Mutex
		var got []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf(format, args...))
		}
		h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
			<-time.After(time.Second)
			if d.ID == "b" {
				return onceward.Permanent(errBad)
			}
			return effect(ctx, tx, d)
		}
		c := consumer(t, "c", memory.Messages(msg("a"), msg("b"), msg("a")), s, h, onceward.Config{MaxBatch: 1, Hooks: &onceward.Hooks{
			Attempted: func(c string, d *onceward.Delivery, took time.Duration, err error) {
				note("attempted %s %s %d %v %v", c, d.ID, d.Attempt, took, err)
			},
			Duplicate: func(c string, m *onceward.Message) { note("duplicate %s %s", c, m.ID) },
			Dead:      func(c string, m *onceward.Message, reason error) { note("dead %s %s", c, m.ID) },
			Committed: func(c string, n int, took time.Duration) { note("committed %s %d %v", c, n, took) },
			State:     func(c string, s onceward.State, why error) { note("state %s %v %v", c, s, why) },
		}})
		run(t, c)
		want := []string{
			"state c running <nil>", "attempted c a 1 1s <nil>", "committed c 1 1s", "attempted c b 1 1s bad", "dead c b",
			"duplicate c a", "state c draining <nil>", "state c stopped <nil>",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("hooks saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Fields that are set to what is the default anyway change nothing, in any combination.
func TestEquivalentConfigs(t *testing.T) {
	set := []func(c *onceward.Config){
		func(c *onceward.Config) { c.Attempts = 10 },
		func(c *onceward.Config) { c.Backoff = onceward.ExponentialBackoff(time.Second, 10*time.Minute) },
		func(c *onceward.Config) { c.Grace = 25 * time.Second },
		func(c *onceward.Config) { c.Hooks = &onceward.Hooks{} },
		func(c *onceward.Config) { c.Identity = onceward.ByMessageID() },
		func(c *onceward.Config) { c.Key = func(m *onceward.Message) (string, error) { return m.Key, nil } },
		func(c *onceward.Config) { c.KeepOrder = true }, // there are no keys
		func(c *onceward.Config) { c.Lanes = 1 },
		func(c *onceward.Config) { c.Match = func(*onceward.Message) bool { return true } },
		func(c *onceward.Config) { c.MaxBatch = 256 },
		func(c *onceward.Config) { c.Retention = 30 * 24 * time.Hour },
		func(c *onceward.Config) { c.Timeout = 30 * time.Second },
	}
	r := seed(t)
	combinations := []int{0, 1<<len(set) - 1}
	for i := range set {
		combinations = append(combinations, 1<<i, (1<<len(set)-1)&^(1<<i))
	}
	for range 40 {
		combinations = append(combinations, r.IntN(1<<len(set)))
	}
	for _, combination := range combinations {
		var cfg onceward.Config
		for i, f := range set {
			if combination&(1<<i) != 0 {
				f(&cfg)
			}
		}
		bubble(t, func(t *testing.T) { equivalent(t, cfg) })
		if t.Failed() {
			t.Fatalf("combination %b", combination)
		}
	}
}

func equivalent(t *testing.T, cfg onceward.Config) {
	s := memory.NewStore()
	h := func(ctx ctx, tx *memory.Tx, d *onceward.Delivery) error {
		switch {
		case d.ID == "dead":
			return errBad
		case d.ID == "permanent":
			return onceward.Permanent(errBad)
		case d.Attempt > 2:
		case d.ID == "panic":
			panic("bad")
		case d.ID == "late":
			<-ctx.Done()
			return ctx.Err()
		case d.ID == "error":
			return errBad
		}
		return effect(ctx, tx, d)
	}
	src := memory.NewSource(msg("good"), msg("dead"), msg("panic"), msg("late"), msg("good"), msg("error"), msg("permanent"), msg("fine"))
	c := consumer(t, "c", src, s, h, cfg)
	l := start(t, c)
	until(t, 3*time.Hour, "all to be done with", func() bool { return c.Stats().Processed == 5 && c.Stats().Dead == 2 })
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	checkEffects(t, s, "good", "panic", "late", "error", "fine")
	checkStats(t, c, onceward.Stats{Received: 8, Processed: 5, Duplicates: 1, Dead: 2, Failed: 17, Retried: 15})
	for _, l := range checkParked(t, s, "dead "+"dead", "permanent dead") {
		if want := map[string]int{"dead": 10, "permanent": 1}[l.Message.ID]; l.Attempts != want {
			t.Errorf("%s: %d attempts, want %d", l.Message.ID, l.Attempts, want)
		}
	}
}
