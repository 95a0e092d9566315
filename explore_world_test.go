package onceward_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/crash"
	"github.com/onceward/onceward/memory"
)

// event is what happens at a step instead of the usual. Steps are counted over all processes.
type event struct {
	at  int
	do  byte // 'd': the process dies; 't': it is told to stop; 'e', 'c': the step fails; 's': the n-th of those that could go next does
	arg int
}

// plan is an execution: it happens again if its plan is run again.
type plan []event

func (p plan) String() string {
	var b strings.Builder
	for i, e := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		fmt.Fprintf(&b, "%d%c", e.at, e.do)
		if e.do == 's' {
			b.WriteString(strconv.Itoa(e.arg))
		}
	}
	return b.String()
}

func parsePlan(s string) (p plan, err error) {
	for part := range strings.SplitSeq(s, ".") {
		i := strings.IndexAny(part, "dtecs")
		if i < 0 {
			return nil, fmt.Errorf("no event: %q", part)
		}
		e := event{do: part[i]}
		if e.at, err = strconv.Atoi(part[:i]); err != nil {
			return nil, err
		}
		if e.do == 's' {
			if e.arg, err = strconv.Atoi(part[i+1:]); err != nil {
				return nil, err
			}
		}
		p = append(p, e)
	}
	return p, nil
}

// proc is one process: a consumer, until it dies or ends.
type proc struct {
	*crash.Process
	slot     int
	cancel   context.CancelFunc
	sessions []onceward.Session
	consumer *onceward.Consumer
}

// waiter is a process that stands at a step.
type waiter struct {
	proc   *proc
	point  string
	result chan error
}

// world is a store, a source and the processes that come and go between them.
type world struct {
	sc    *scenario
	store onceward.Store[*memory.Tx]
	box   *box

	mu      sync.Mutex
	waiters []*waiter
	arrived chan struct{}
	procs   []*proc // those alive, by slot
	running int     // slots
	ending  bool
	last    int // slot that went last

	plan   plan
	random *rand.Rand // nil: only what the plan says
	steps  int
	widths []int    // how many could have gone, per step
	trace  []string // the points passed
	faults int
	deaths int
	stops  int

	starts       map[string]int // of handlers, by id and body
	finished     map[string]int // handler calls that succeeded, by id and body
	parcelStarts map[string]int // starts, by serial
	effects      int            // tried
	disturbed    bool           // a process has died or was stopped, or a step failed
	processed    int            // as the summaries of those say that ended
	unclear      bool           // a process has died, or did not learn of its commit
	problems     []string
}

const mostSteps = 20000

// result is how an execution went.
type result struct {
	plan     plan
	steps    int
	widths   []int
	trace    []string
	problems []string
}

// execute runs the scenario once.
func execute(t *testing.T, sc *scenario, p plan, random *rand.Rand) (r result) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			sc: sc, store: memory.NewStore(), box: &box{Source: memory.NewSource()}, plan: p, random: random,
			arrived: make(chan struct{}, 1), starts: map[string]int{}, finished: map[string]int{},
			parcelStarts: map[string]int{},
		}
		w.prepare(t)
		w.run()
		w.check()
		r = result{w.plan, w.steps, w.widths, w.trace, w.problems}
	})
	return r
}

func (w *world) problemf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// prepare sends the messages.
func (w *world) prepare(t *testing.T) {
	w.box.NoHints, w.box.NoDelayedRetry, w.box.NoDeadLetters = w.sc.noHints, !w.sc.sourceKeeps, !w.sc.sourceKeeps
	if w.sc.consumers > 1 {
		w.box.prefetch = 4 // leave some to the others
	}
	if !w.sc.ownQueue {
		w.box.send(w.sc.messages...)
	}
	if w.sc.ends {
		w.box.End()
	}
	if w.sc.ownQueue {
		for _, m := range w.sc.messages {
			if err := w.store.Put(t.Context(), onceward.Entry{Queue: "in", Message: m, State: onceward.Waiting}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range w.sc.waiting {
		if err := w.store.Put(t.Context(), onceward.Entry{Queue: onceward.Retries, Consumer: name, Message: m, State: onceward.Waiting}); err != nil {
			t.Fatal(err)
		}
	}
}

const name = "explorer"

// run runs the processes until nothing is left to do, and lets them end.
func (w *world) run() {
	w.running = max(w.sc.consumers, 1)
	w.procs = make([]*proc, w.running)
	for slot := range w.procs {
		go w.slot(slot)
	}
	deadline := time.Now().Add(24 * time.Hour)
	for {
		synctest.Wait()
		w.mu.Lock()
		waiting, running := len(w.waiters), w.running
		w.mu.Unlock()
		switch {
		case running == 0:
			return
		case !w.ending && w.quiet():
			w.end()
		case time.Now().After(deadline) || w.steps > mostSteps:
			w.problemf("it never came to an end")
			w.ending = true
			for _, p := range w.procs {
				w.kill(p)
			}
			synctest.Wait()
			<-time.After(time.Hour)
			return
		case waiting > 0:
			w.next()
		default:
			select {
			case <-w.arrived:
			case <-time.After(time.Minute):
			}
		}
	}
}

// quiet reports whether nothing is left to do.
func (w *world) quiet() bool {
	if w.box.Pending() > 0 {
		return false
	}
	stats, err := w.store.Stats(context.Background())
	if err != nil {
		w.problemf("Stats: %v", err)
	}
	for _, s := range stats {
		if (s.Queue == "in" || s.Queue == onceward.Retries) && s.Waiting+s.InHand > 0 {
			return false
		}
	}
	return true
}

func (w *world) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	for _, p := range w.procs {
		if p != nil {
			p.cancel()
		}
	}
}

// slot runs one process after the other.
func (w *world) slot(slot int) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
		w.signal()
	}()
	for {
		ctx, cancel := context.WithCancel(context.Background())
		p := &proc{Process: crash.NewProcess(), slot: slot, cancel: cancel}
		w.mu.Lock()
		w.procs[slot] = p
		ending := w.ending
		w.mu.Unlock()
		if ending {
			cancel()
			return
		}
		p.consumer = w.sc.consumer(w, p)
		err := p.consumer.Run(ctx)
		cancel()
		if !p.Dead() {
			w.ended(p, err)
		}
		<-time.After(time.Second)
	}
}

// ended checks a process that ended by itself.
func (w *world) ended(p *proc, err error) {
	if err != nil {
		w.problemf("the consumer failed: %v", err)
	}
	s := p.consumer.Stats()
	w.processed += int(s.Processed)
	if in, out := s.Received+s.WaitingAtStart, s.Processed+s.Duplicates+s.Skipped+s.Dead+s.Waiting+s.GivenBack; in != out {
		w.problemf("the summary does not add up: %+v", s)
	}
}

func (w *world) signal() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// step is where a process waits for its turn.
func (w *world) step(p *proc) crash.Step {
	return p.Step(func(_ context.Context, point string) error {
		x := &waiter{p, point, make(chan error, 1)}
		w.mu.Lock()
		w.waiters = append(w.waiters, x)
		w.signal()
		w.mu.Unlock()
		select {
		case err := <-x.result:
			return err
		case <-p.Died():
			return crash.ErrDead
		}
	})
}

// next lets one of those that wait go on.
func (w *world) next() {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.waiters, func(a, b *waiter) int {
		return cmp.Or(w.far(a.proc.slot)-w.far(b.proc.slot), cmp.Compare(a.point, b.point))
	})
	if i := slices.IndexFunc(w.waiters, func(x *waiter) bool { return crash.Idle(x.point) }); i >= 0 {
		w.waiters[i].result <- nil // no choice, only one after the other
		w.waiters = slices.Delete(w.waiters, i, i+1)
		return
	}
	es := w.due()
	i := 0
	for _, e := range es {
		if e.do == 's' {
			i = e.arg % len(w.waiters)
		}
	}
	x := w.waiters[i]
	w.waiters = slices.Delete(w.waiters, i, i+1)
	w.last = x.proc.slot
	w.widths = append(w.widths, len(w.waiters)+1)
	w.trace = append(w.trace, fmt.Sprintf("%d %c %s", w.steps, 'A'+rune(x.proc.slot), x.point))
	w.steps++
	var err error
	for _, e := range es {
		switch e.do {
		case 'd':
			w.trace = append(w.trace, "dies")
			w.kill(x.proc)
			return
		case 't':
			w.trace = append(w.trace, "is told to stop")
			w.disturbed = true
			x.proc.cancel()
		case 'e':
			err = failure(x.point)
		case 'c':
			err = fmt.Errorf("injected: %w", onceward.ErrConflict)
		}
	}
	if err != nil {
		w.disturbed = true
		w.unclear = w.unclear || x.point == "commit"+crash.After
		w.trace = append(w.trace, err.Error())
	}
	x.result <- err
}

// far orders the slots, beginning with the one that went last.
func (w *world) far(slot int) int { return (slot - w.last + len(w.procs)) % len(w.procs) }

// due returns the events of the coming step.
func (w *world) due() (es []event) {
	for _, e := range w.plan {
		if e.at == w.steps {
			es = append(es, e)
		}
	}
	if w.random == nil {
		return es
	}
	if n := len(w.waiters); n > 1 && w.random.IntN(3) == 0 {
		es = append(es, event{w.steps, 's', w.random.IntN(n)})
	}
	switch {
	case w.deaths < 3 && w.random.IntN(25) == 0:
		w.deaths++
		es = append(es, event{w.steps, 'd', 0})
	case !w.sc.noStops && w.stops < 2 && w.random.IntN(50) == 0:
		w.stops++
		es = append(es, event{w.steps, 't', 0})
	case w.faults < 3 && w.random.IntN(25) == 0:
		w.faults++
		es = append(es, event{w.steps, 'e', 0})
	}
	w.plan = append(w.plan, es...)
	return es
}

var errInjected = errors.New("injected")

// failure is an error that the operation at a point may return.
func failure(point string) error {
	op, rest, _ := strings.Cut(point, " ")
	if point == "close"+crash.Before {
		return nil // a session that is not closed by its consumer breaks sooner or later
	}
	switch op {
	case "subscribe", "receive", "settle", "close", "handle":
		return errInjected
	case "park", "put", "finish", "attempt", "start", "commit":
		if strings.HasPrefix(rest, "after") {
			return fmt.Errorf("%w: %w", errInjected, onceward.ErrInDoubt)
		}
	}
	return fmt.Errorf("%w: %w", errInjected, onceward.ErrUnavailable)
}

// kill ends a process: its connections break.
func (w *world) kill(p *proc) {
	if p == nil || p.Dead() {
		return
	}
	p.Kill()
	w.disturbed, w.unclear = true, true
	w.checkEmitted()
	w.waiters = slices.DeleteFunc(w.waiters, func(x *waiter) bool { return x.proc == p })
	p.cancel()
	for _, n := range p.sessions {
		_ = n.Close(context.Background())
	}
}

// quietLog keeps the consumers' logs out of the way.
var quietLog = slog.New(slog.DiscardHandler)
