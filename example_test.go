package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/memory"
)

type payment struct {
	Account string
	Cents   int64
}

// debit is the handler of the examples: its effect goes through tx, and only through tx.
func debit(_ context.Context, tx *memory.Tx, d *onceward.Delivery) error {
	var p payment
	if err := d.DecodeJSON(&p); err != nil {
		return err // permanent: a dead letter now
	}
	tx.Add(p.Account, -p.Cents)
	return nil
}

func payments() onceward.Source {
	return memory.Messages(
		&onceward.Message{ID: onceward.ID("payment", 1), Body: []byte(`{"account":"ada","cents":1990}`)},
		&onceward.Message{ID: onceward.ID("payment", 2), Body: []byte(`{"account":"bob","cents":500}`)},
		&onceward.Message{ID: onceward.ID("payment", 1), Body: []byte(`{"account":"ada","cents":1990}`)}, // again
	)
}

func ExampleEffectivelyOnce() {
	store := memory.NewStore()
	ledger, err := onceward.EffectivelyOnce("ledger", payments(), store, debit, nil)
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(context.Background(), ledger); err != nil {
		panic(err)
	}
	ada, _ := store.Value("ada")
	bob, _ := store.Value("bob")
	fmt.Println(ada, bob, "duplicates:", ledger.Stats().Duplicates)
	// Output: -1990 -500 duplicates: 1
}

func ExampleEffectivelyOnceBatch() {
	store := memory.NewStore()
	sum := func(_ context.Context, tx *memory.Tx, ds []*onceward.Delivery) error {
		var cents int64
		for _, d := range ds {
			var p payment
			if err := d.DecodeJSON(&p); err != nil {
				return d.Fail(err) // this one's fault: the others are processed without it
			}
			cents += p.Cents
		}
		tx.Add("turnover", cents)
		return nil
	}
	turnover, err := onceward.EffectivelyOnceBatch("turnover", payments(), store, sum, nil)
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(context.Background(), turnover); err != nil {
		panic(err)
	}
	fmt.Println(store.Value("turnover"))
	// Output: 2490 true
}

func ExampleAtLeastOnce() {
	store := memory.NewStore() // keeps retries and dead letters
	h := func(_ context.Context, d *onceward.Delivery) error {
		fmt.Println("audited", d.ID)
		return nil
	}
	audit, err := onceward.AtLeastOnce("audit", payments(), h, &onceward.Config{Queue: store})
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(context.Background(), audit); err != nil {
		panic(err)
	}
	// Output:
	// audited payment:1
	// audited payment:2
	// audited payment:1
}

func ExampleAtMostOnce() {
	seen := 0
	h := func(context.Context, *onceward.Delivery) error { seen++; return nil }
	metrics, err := onceward.AtMostOnce("metrics", payments(), h, nil)
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(context.Background(), metrics); err != nil {
		panic(err)
	}
	fmt.Println("seen", seen)
	// Output: seen 3
}

// A webhook, a request with an idempotency key, a cron job: no broker, the same claim.
func ExampleOnce() {
	store := memory.NewStore()
	ctx := context.Background()
	for range 2 {
		ran, err := onceward.Once(ctx, store, "stripe-webhook", "evt_1NG8Du2eZvKYlo2C", func(_ context.Context, tx *memory.Tx) error {
			tx.Add("credits", 100)
			return nil
		})
		fmt.Println(ran, err)
	}
	fmt.Println(store.Value("credits"))
	// Output:
	// true <nil>
	// false <nil>
	// 100 true
}

// A producer without a broker: the message is written in the business transaction, and a consumer
// reads it from the store's own queue.
func ExampleStore_queue() {
	store := memory.NewStore()
	ctx := context.Background()
	err := store.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		tx.Put("order 42", "created") // the business effect
		return store.Append(ctx, tx, "orders", &onceward.Message{ID: onceward.ID("order", 42, "created"), Body: []byte("42")})
	})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(ctx)
	h := func(_ context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		tx.Put("order "+string(d.Body), "shipped")
		return nil
	}
	shipping, err := onceward.EffectivelyOnce("shipping", store.Queue("orders"), store, h, &onceward.Config{
		Hooks: &onceward.Hooks{Committed: func(string, int, time.Duration) { stop() }},
	})
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(ctx, shipping); err != nil {
		panic(err)
	}
	fmt.Println(store.Value("order 42"))
	// Output: shipped true
}

func ExampleDelivery_Emit() {
	store := memory.NewStore()
	h := func(_ context.Context, _ *memory.Tx, d *onceward.Delivery) error {
		d.Emit("labels", "label", &onceward.Message{Body: d.Body}) // leaves with the effect, or not at all
		return nil
	}
	src := memory.Messages(&onceward.Message{ID: "order:42:created", Body: []byte("42")})
	shipping, err := onceward.EffectivelyOnce("shipping", src, store, h, nil)
	if err != nil {
		panic(err)
	}
	if err := onceward.Run(context.Background(), shipping); err != nil {
		panic(err)
	}
	rows, err := store.List(context.Background(), onceward.Filter{Queue: "labels"})
	if err != nil {
		panic(err)
	}
	fmt.Println(rows[0].Message.ID)
	// Output: order:42:created#shipping:label
}

// A unit test of a handler needs no consumer and no broker: a delivery made by hand and a store in
// memory.
func ExampleDelivery_unitTest() {
	store := memory.NewStore()
	d := &onceward.Delivery{Message: onceward.Message{ID: "payment:1", Body: []byte(`{"account":"ada","cents":1990}`)}}
	err := store.InTx(context.Background(), func(ctx context.Context, tx *memory.Tx) error {
		return debit(ctx, tx, d)
	})
	fmt.Println(err)
	fmt.Println(store.Value("ada"))
	// Output:
	// <nil>
	// -1990 true
}

func ExamplePermanent() {
	err := onceward.Permanent(errors.New("no such account"))
	fmt.Println(err, onceward.IsPermanent(fmt.Errorf("debit: %w", err)))
	// Output: no such account true
}

func ExampleID() {
	fmt.Println(onceward.ID("order", 42, "created"))
	fmt.Println(onceward.ID("a", "b:c"), onceward.ID("a:b", "c"))
	// Output:
	// order:42:created
	// a:b%3Ac a%3Ab:c
}

// In a service: SIGTERM ends ctx, and Run finishes what was started.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ledger, err := onceward.EffectivelyOnce("ledger", payments(), memory.NewStore(), debit, nil)
	if err != nil {
		slog.Error("ledger", "error", err)
		return
	}
	if err := onceward.Run(ctx, ledger); err != nil {
		slog.Error("stopped", "error", err)
	}
	// Output:
}
