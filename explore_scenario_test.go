package onceward_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/crash"
	"github.com/onceward/onceward/internal/storequeue"
	"github.com/onceward/onceward/memory"
)

// scenario is a consumer, how many processes of it run, and what comes to it.
type scenario struct {
	name      string
	guarantee string
	messages  []onceward.Message
	waiting   []onceward.Message // put aside in an earlier life
	consumers int                // at the same time; 0 is 1

	noHints     bool // the source does not mark redeliveries
	sourceKeeps bool // the source delays and dead-letters
	ends        bool // the source ends
	ownQueue    bool // the source is a queue of the store
	noStops     bool // no process is told to stop by chance
	config      onceward.Config
	broken      *broken
}

// broken is what a wrong implementation does.
type broken struct {
	store   func(s onceward.Store[*memory.Tx]) onceward.Store[*memory.Tx]
	source  func(s onceward.Source) onceward.Source
	handler func(s onceward.Store[*memory.Tx], d *onceward.Delivery, err error) error
}

const attempts = 4

func m(id, body string) onceward.Message { return onceward.Message{ID: id, Body: []byte(body)} }

func withKey(id, key string) onceward.Message {
	return onceward.Message{ID: id, Key: key, Body: []byte("x")}
}

// kind is what the handler does with a message.
func kind(id string) string { return strings.TrimRight(id, "0123456789") }

func (sc *scenario) consumer(w *world, p *proc) *onceward.Consumer {
	c := sc.config
	c.Logger, c.Timeout, c.Grace = quietLog, 5*time.Second, 20*time.Second
	c.Match = func(m *onceward.Message) bool { return kind(m.ID) != "skip" }
	if sc.guarantee != "AtMostOnce" {
		c.Backoff = func(int) time.Duration { return time.Second }
		c.Attempts = max(c.Attempts, attempts)
	}
	step := w.step(p)
	store, src := sc.parts(w, p)
	plain := crash.Handler(func(_ context.Context, d *onceward.Delivery) error { return w.handle(p, d, nil) }, step)
	var co *onceward.Consumer
	var err error
	switch sc.guarantee {
	case "AtMostOnce":
		co, err = onceward.AtMostOnce(name, src, plain, &c)
	case "AtLeastOnce":
		if !sc.sourceKeeps {
			c.Queue = store
		}
		co, err = onceward.AtLeastOnce(name, src, plain, &c)
	case "EffectivelyOnceBatch":
		co, err = onceward.EffectivelyOnceBatch(name, src, store, crash.TxBatchHandler(sc.batchHandler(w, p), step), &c)
	default:
		co, err = onceward.EffectivelyOnce(name, src, store, crash.TxHandler(sc.handler(w, p), step), &c)
	}
	if err != nil {
		panic(err)
	}
	onceward.Isolate(co)
	return co
}

// parts are the store and the source as a process sees them.
func (sc *scenario) parts(w *world, p *proc) (txStore, onceward.Source) {
	step, inner := w.step(p), w.store
	var src onceward.Source = &boxSource{w.box, p}
	if b := sc.broken; b != nil && b.store != nil {
		inner = b.store(inner)
	}
	if b := sc.broken; b != nil && b.source != nil {
		src = b.source(src)
	}
	store := crash.Store(inner, step)
	if sc.ownQueue {
		return store, singlyQueue{storequeue.New(store, "in")}
	}
	return store, crash.Source(src, step)
}

func (sc *scenario) handler(w *world, p *proc) onceward.TxHandler[*memory.Tx] {
	return func(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) error {
		err := w.handle(p, d, w.effect(ctx, tx, d))
		if b := sc.broken; b != nil && b.handler != nil {
			return b.handler(w.store, d, err)
		}
		return err
	}
}

func (sc *scenario) batchHandler(w *world, p *proc) onceward.TxBatchHandler[*memory.Tx] {
	return func(ctx context.Context, tx *memory.Tx, ds []*onceward.Delivery) error {
		for _, d := range ds {
			if err := w.handle(p, d, w.effect(ctx, tx, d)); err != nil {
				return d.Fail(err)
			}
		}
		return nil
	}
}

const effects = "effects"

// effect is a row in tx which names the message, its body and this call.
func (w *world) effect(ctx context.Context, tx *memory.Tx, d *onceward.Delivery) func() error {
	return func() error {
		w.mu.Lock()
		w.effects++
		id := fmt.Sprintf("%s|%s|%d", d.ID, d.Body, w.effects)
		w.mu.Unlock()
		return w.store.Append(ctx, tx, effects, &onceward.Message{ID: id, Key: d.Key})
	}
}

// handle does what a message of this kind makes a handler do.
func (w *world) handle(p *proc, d *onceward.Delivery, effect func() error) error {
	w.mu.Lock()
	id := d.ID + "|" + string(d.Body)
	w.starts[id]++
	w.parcelStarts[d.Headers.Get(serialHeader)]++
	starts := w.starts[id]
	w.mu.Unlock()
	if effect != nil {
		if err := effect(); err != nil {
			return err
		}
	}
	switch kind(d.ID) {
	case "fail":
		return errors.New("it always fails")
	case "perm":
		return onceward.Permanent(errors.New("no use"))
	case "panic":
		panic("oh")
	case "kill":
		w.mu.Lock()
		w.kill(p)
		w.mu.Unlock()
		return crash.ErrDead
	case "flaky", "rival":
		if starts == 1 {
			return errors.New("not the first time")
		}
	case "mood":
		if starts == 1 {
			return onceward.Permanent(errors.New("not the first time"))
		}
	case "emit":
		d.Emit(onceward.Outbox, "out", &onceward.Message{Body: []byte("emitted")})
	}
	w.mu.Lock()
	w.finished[id]++
	w.mu.Unlock()
	return nil
}

// outcome is what is there of one message id when all is over.
type outcome struct {
	effects []string // bodies
	dead    []string
	emitted int
	done    bool
}

// outcomes joins what is in the store, by message id.
func (w *world) outcomes() map[string]*outcome {
	os := map[string]*outcome{}
	of := func(id string) *outcome {
		if os[id] == nil {
			os[id] = &outcome{}
		}
		return os[id]
	}
	ctx := context.Background()
	rows, err := w.store.List(ctx, onceward.Filter{Limit: 10000})
	if err != nil {
		w.problemf("List: %v", err)
	}
	for i := range rows {
		switch r := &rows[i]; {
		case r.Queue == effects:
			f := strings.Split(r.Message.ID, "|")
			of(f[0]).effects = append(of(f[0]).effects, f[1])
		case r.Queue == onceward.Outbox:
			id, _, _ := strings.Cut(r.Message.ID, "#")
			of(id).emitted++
		case r.State == onceward.Dead:
			of(r.Message.ID).dead = append(of(r.Message.ID).dead, string(r.Message.Body))
			w.checkDead(r)
		case w.sc.guarantee != "AtMostOnce":
			w.problemf("%s is still %v in queue %s", r.Message.ID, r.State, r.Queue)
		}
	}
	for _, id := range w.ids() {
		if id == "" {
			continue
		}
		done, err := w.store.Recorded(ctx, name, []onceward.Record{{ID: onceward.StoredID(id)}})
		if err != nil {
			w.problemf("Recorded: %v", err)
		}
		of(id).done = done[0]
	}
	return os
}

func (w *world) checkDead(r *onceward.Leased) {
	if r.Reason == "" {
		w.problemf("dead letter %q without a reason", r.Message.ID)
	}
	switch kind(r.Message.ID) {
	case "fail", "panic", "kill":
		// A process that dies between counting a start and starting has counted one too many.
		most := max(w.sc.config.Attempts, attempts)
		if n := r.Attempts; n < most || n > most && !w.disturbed {
			w.problemf("dead letter %q after %d attempts, want %d", r.Message.ID, n, most)
		}
	}
}

// checkEmitted checks that what was emitted by now comes from transactions that are committed.
func (w *world) checkEmitted() {
	if !strings.HasPrefix(w.sc.guarantee, "EffectivelyOnce") {
		return
	}
	rows, err := w.store.List(context.Background(), onceward.Filter{Queue: onceward.Outbox})
	if err != nil {
		w.problems = append(w.problems, err.Error())
	}
	for i := range rows {
		id, _, _ := strings.Cut(rows[i].Message.ID, "#")
		done, err := w.store.Recorded(context.Background(), name, []onceward.Record{{ID: onceward.StoredID(id)}})
		if err != nil || !done[0] {
			w.problems = append(w.problems, fmt.Sprintf("%s is not finished, and has emitted %s (%v)", id, rows[i].Message.ID, err))
		}
	}
}

func (w *world) ids() (ids []string) {
	for _, m := range slices.Concat(w.sc.messages, w.sc.waiting) {
		if !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// check checks the promise.
func (w *world) check() {
	switch w.sc.guarantee {
	case "AtMostOnce":
		w.checkAtMost()
	case "AtLeastOnce":
		w.checkAtLeast()
	default:
		w.checkEffectively()
	}
}

func (w *world) checkAtMost() {
	for _, p := range w.box.parcels {
		n := w.parcelStarts[p.serial]
		switch {
		case kind(p.ID) == "skip" && n > 0:
			w.problemf("%s was handled, but does not match", p.serial)
		case n > 1:
			w.problemf("%s was handled %d times", p.serial, n)
		case n == 0 && !w.disturbed && kind(p.ID) != "skip":
			w.problemf("%s was lost, and nothing had happened", p.serial)
		case p.verdict != onceward.Ack:
			w.problemf("%s: verdict %d", p.serial, p.verdict)
		}
	}
}

func (w *world) checkAtLeast() {
	os := w.outcomes()
	for _, p := range w.box.parcels {
		o := os[p.ID]
		if o == nil {
			o = &outcome{}
		}
		if why := w.wrongAtLeast(p, len(o.dead)); why != "" {
			w.problemf("%s %s: %d dead letters, verdict %d", p.serial, why, len(o.dead), p.verdict)
		}
		if kind(p.ID) == "emit" && o.emitted != 1 {
			w.problemf("%s emitted %d messages", p.serial, o.emitted)
		}
	}
}

// wrongAtLeast says what is wrong about the end of a message, of whose id there are so many dead
// letters in the store.
func (w *world) wrongAtLeast(p *parcel, dead int) string {
	id := p.ID + "|" + string(p.Body)
	rejected := p.verdict == onceward.Reject
	switch {
	case p.verdict == 0:
		return "is not settled"
	case rejected && !w.sc.sourceKeeps:
		return "was rejected"
	}
	isDead := rejected || dead > 0
	switch kind(p.ID) {
	case "skip":
		if w.starts[id] > 0 {
			return "was handled, but does not match"
		}
	case "fail", "perm", "panic", "kill":
		if !isDead {
			return "is no dead letter"
		}
	case "mood":
		if w.finished[id] == 0 && !isDead {
			return "was lost"
		}
	default:
		if w.finished[id] == 0 || isDead {
			return "was lost"
		}
	}
	return ""
}

func (w *world) checkEffectively() {
	os := w.outcomes()
	effects := 0
	for _, o := range os {
		effects += len(o.effects)
	}
	if w.processed > effects || w.processed < effects && !w.unclear {
		w.problemf("%d effects, and %d processed in the summaries", effects, w.processed)
	}
	for _, p := range w.box.parcels {
		if p.verdict != onceward.Ack {
			w.problemf("%s: verdict %d", p.serial, p.verdict)
		}
	}
	for _, id := range w.ids() {
		o := os[id]
		if o == nil {
			o = &outcome{}
		}
		emitted := 0
		if kind(id) == "emit" {
			emitted = len(o.effects)
		}
		if o.emitted != emitted {
			w.problemf("%s took effect %d times and emitted %d messages", id, emitted, o.emitted)
		}
		if why := o.wrong(id); why != "" {
			w.problemf("%q %s: effects %q, dead letters %q, in the inbox: %v", id, why, o.effects, o.dead, o.done)
		}
	}
	w.checkOrder()
}

// wrong says what is wrong about the outcome of an id.
func (o *outcome) wrong(id string) string {
	effects, dead := len(o.effects), len(o.dead)
	var ok bool
	var want string
	switch kind(id) {
	case "skip":
		ok, want = effects+dead == 0, "should have been skipped"
	case "fail", "perm", "panic", "kill", "":
		ok, want = effects == 0 && dead == 1, "should be a dead letter"
	case "mood":
		ok, want = effects+dead == 1, "should be an effect or a dead letter"
	case "clash", "rival":
		ok, want = effects == 1 && dead == 1 && o.effects[0] != o.dead[0], "should be one effect, and a dead letter with the other body"
	default:
		ok, want = effects == 1 && dead == 0, "should have taken effect once"
	}
	switch {
	case id != "" && o.done != (effects > 0):
		return "has a record and no effect, or an effect and no record"
	case !ok:
		return want
	}
	return ""
}

// checkOrder checks that the effects of each key were committed in the order of sending.
func (w *world) checkOrder() {
	if !w.sc.config.KeepOrder || w.sc.consumers > 1 {
		return
	}
	if w.sc.ownQueue && w.disturbed {
		return // the rows that a dead process had leased come after those that it had not
	}
	rows, err := w.store.List(context.Background(), onceward.Filter{Queue: effects, Limit: 10000})
	if err != nil {
		w.problemf("List: %v", err)
	}
	last := map[string]int{}
	for i := range rows {
		id, _, _ := strings.Cut(rows[i].Message.ID, "|")
		at := slices.Index(w.ids(), id)
		if key := rows[i].Message.Key; key != "" && at < last[key] {
			w.problemf("%s took effect after a later message of its key", id)
		} else {
			last[key] = at
		}
	}
}
