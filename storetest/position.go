package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward"
)

func positionCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "an unknown log begins at 0", run: (*env[TTx]).positionUnknown},
		{name: "advances with the transaction", run: (*env[TTx]).positionAdvances},
		{name: "a rollback does not advance", run: (*env[TTx]).positionRollback},
		{name: "a former owner is fenced", run: (*env[TTx]).positionFenced},
		{name: "nobody advances what nobody owns", run: (*env[TTx]).positionNotOwned},
		{name: "taking over waits for a transaction in flight", run: (*env[TTx]).positionInFlight},
		{name: "consumers, logs and partitions are apart", run: (*env[TTx]).positionApart},
		{name: "several at once, in the order given", run: (*env[TTx]).positionSeveral},
	}
}

func at(log string, partition int32) onceward.Position {
	return onceward.Position{Log: log, Partition: partition}
}

func (e *env[TTx]) takeOver(consumer string, ps ...onceward.Position) []onceward.Position {
	e.Helper()
	got, err := e.s.TakeOver(e.ctx, consumer, ps)
	e.must(err)
	if len(got) != len(ps) {
		e.Fatalf("TakeOver of %d positions returned %d", len(ps), len(got))
	}
	for i := range ps {
		if got[i].Log != ps[i].Log || got[i].Partition != ps[i].Partition {
			e.Fatalf("TakeOver(%v) = %v, want the same order", ps, got)
		}
	}
	return got
}

// advance sets p's Next in a transaction that ends with how.
func (e *env[TTx]) advance(consumer string, how error, ps ...onceward.Position) error {
	return e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
		return errors.Join(e.s.Advance(ctx, tx, consumer, ps), how)
	})
}

func to(p onceward.Position, next int64) onceward.Position {
	p.Next = next
	return p
}

func (e *env[TTx]) positionUnknown() {
	first := e.takeOver("c", at("log", 0))[0]
	if first.Next != 0 {
		e.Fatalf("an unknown log begins at %d", first.Next)
	}
	second := e.takeOver("c", at("log", 0))[0]
	if second.Next != 0 || second.Epoch <= first.Epoch {
		e.Fatalf("epochs %d, then %d, want them to grow", first.Epoch, second.Epoch)
	}
}

func (e *env[TTx]) positionAdvances() {
	p := e.takeOver("c", at("log", 0))[0]
	for _, next := range []int64{1, 7, 1 << 40} {
		e.must(e.advance("c", nil, to(p, next)))
	}
	if again := e.takeOver("c", at("log", 0))[0]; again.Next != 1<<40 {
		e.Fatalf("Next = %d, want %d", again.Next, int64(1)<<40)
	}
}

func (e *env[TTx]) positionRollback() {
	p := e.takeOver("c", at("log", 0))[0]
	e.must(e.advance("c", nil, to(p, 5)))
	no := errors.New("no")
	if err := e.advance("c", no, to(p, 9)); !errors.Is(err, no) {
		e.Fatalf("InTx = %v", err)
	}
	if again := e.takeOver("c", at("log", 0))[0]; again.Next != 5 {
		e.Fatalf("Next = %d after a rollback, want 5", again.Next)
	}
}

func (e *env[TTx]) positionFenced() {
	former := e.takeOver("c", at("log", 0))[0]
	e.must(e.advance("c", nil, to(former, 5)))
	present := e.takeOver("c", at("log", 0))[0]
	if err := e.advance("c", nil, to(former, 9)); !errors.Is(err, onceward.ErrStale) {
		e.Fatalf("Advance of a former owner = %v, want ErrStale", err)
	}
	e.must(e.advance("c", nil, to(present, 7)))
	if again := e.takeOver("c", at("log", 0))[0]; again.Next != 7 {
		e.Fatalf("Next = %d, want 7", again.Next)
	}
}

func (e *env[TTx]) positionNotOwned() {
	p := e.takeOver("c", at("log", 0))[0]
	for _, other := range []onceward.Position{at("Log", 0), at("log", 1), at("log ", 0)} {
		other.Epoch = p.Epoch
		if err := e.advance("c", nil, to(other, 1)); !errors.Is(err, onceward.ErrStale) {
			e.Errorf("Advance of %v, which nobody owns = %v, want ErrStale", other, err)
		}
	}
	if err := e.advance("d", nil, to(p, 1)); !errors.Is(err, onceward.ErrStale) {
		e.Errorf("Advance of another consumer = %v, want ErrStale", err)
	}
	if err := e.advance("c", nil, to(p, 3), to(at("log", 1), 3)); !errors.Is(err, onceward.ErrStale) {
		e.Errorf("Advance of two, one of which nobody owns = %v, want ErrStale", err)
	}
	if again := e.takeOver("c", at("log", 0))[0]; again.Next != 0 {
		e.Errorf("Next = %d, although its transaction failed", again.Next)
	}
}

func (e *env[TTx]) positionInFlight() {
	p := e.takeOver("c", at("log", 0))[0]
	advanced, release, done := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- e.s.InTx(e.ctx, func(ctx context.Context, tx TTx) error {
			advanced <- e.s.Advance(ctx, tx, "c", []onceward.Position{to(p, 5)})
			<-release
			return nil
		})
	}()
	if err := within(e.T, "Advance", advanced); err != nil {
		close(release)
		e.Fatalf("Advance: %v", err)
	}
	taken := make(chan onceward.Position, 1)
	go func() {
		got, err := e.s.TakeOver(e.ctx, "c", []onceward.Position{at("log", 0)})
		if err != nil {
			e.Errorf("TakeOver: %v", err)
			got = make([]onceward.Position, 1)
		}
		taken <- got[0]
	}()
	if early, ok := lapse(taken, min(e.h.MaxWait/4, 50*time.Millisecond)); ok {
		e.Errorf("TakeOver = %v, with a transaction in flight", early)
		taken <- early
	}
	close(release)
	if err := within(e.T, "the transaction", done); err != nil {
		e.Errorf("the transaction in flight: %v", err)
	}
	if got := within(e.T, "TakeOver", taken); got.Next != 5 || got.Epoch <= p.Epoch {
		e.Fatalf("TakeOver = %+v, want to go on at 5 with a higher epoch than %d", got, p.Epoch)
	}
}

func (e *env[TTx]) positionApart() {
	want := map[string]int64{}
	for i, key := range []string{"log", "Log", "log ", "log\x00", "\xff"} {
		for partition := range int32(3) {
			p := e.takeOver("c", at(key, partition))[0]
			next := int64(i*10) + int64(partition) + 1
			e.must(e.advance("c", nil, to(p, next)))
			want[to(p, 0).String()] = next
		}
	}
	if len(want) != 15 {
		e.Fatalf("%d positions, want 15", len(want))
	}
	for _, key := range []string{"log", "Log", "log ", "log\x00", "\xff"} {
		for partition := range int32(3) {
			if got := e.takeOver("c", at(key, partition))[0]; want[to(got, 0).String()] != got.Next {
				e.Errorf("%q %d: %d, want %d", key, partition, got.Next, want[to(got, 0).String()])
			}
		}
	}
	if got := e.takeOver("C", at("log", 0))[0]; got.Next != 0 {
		e.Errorf("another consumer goes on at %d", got.Next)
	}
}

func (e *env[TTx]) positionSeveral() {
	ps := e.takeOver("c", at("z", 1), at("a", 5), at("z", 0), at("m", 2))
	for i := range ps {
		ps[i].Next = int64(i) + 100
	}
	e.must(e.advance("c", nil, ps...))
	for i, got := range e.takeOver("c", ps...) {
		if got.Next != int64(i)+100 || got.Epoch <= ps[i].Epoch {
			e.Errorf("number %d: %+v after %+v", i, got, ps[i])
		}
	}
	if got := e.takeOver("c"); len(got) != 0 {
		e.Errorf("TakeOver of nothing = %v", got)
	}
	e.must(e.advance("c", nil))
}
