package onceward_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/onceward/onceward"
)

// The explorer runs scenarios again and again, and lets in each execution other processes die, other
// steps fail and others go first. All of it is in one testing/synctest bubble per execution, so that
// waiting takes no time. A failed execution prints a line to run it again:
//
//	ONCEWARD_REPLAY='effectively: 12d.20s1' go test -run TestExplore .
//
// ONCEWARD_EXPLORE multiplies how much is explored, ONCEWARD_SEED is where random choices begin.

var everything = []onceward.Message{
	m("good1", "x"), m("twin", "x"), m("clash", "x"), m("flaky", "x"), m("good2", "x"), m("twin", "x"),
	m("perm", "x"), m("emit", "x"), m("clash", "y"), m("skip", "x"), m("", "no id"), m("fail", "x"), m("panic", "x"), m("mood", "x"), m("good3", "x"), m("mood", "x"),
}

var few = []onceward.Message{
	m("good1", "x"), m("twin", "x"), m("flaky", "x"), m("twin", "x"), m("mood", "x"), m("emit", "x"), m("mood", "x"),
}

var fine = []onceward.Message{m("good1", "x"), m("emit", "x"), m("good2", "x"), m("good3", "x")}

var pairs = []onceward.Message{m("good1", "x"), m("emit", "x"), m("good1", "x"), m("good2", "x"), m("emit", "x"), m("good2", "x")}

var rivals = []onceward.Message{m("rival1", "x"), m("rival1", "y"), m("good1", "x"), m("rival2", "x"), m("rival2", "y")}

var oneKey = []onceward.Message{
	withKey("good1", "k"), withKey("good2", "k"), withKey("flaky1", "k"), withKey("good3", "k"), withKey("emit1", "k"), withKey("flaky2", "k"), withKey("good4", "k"),
}

var twins = []onceward.Message{m("mood", "x"), m("emit", "x"), m("flaky", "x"), m("emit", "x"), m("mood", "x"), m("flaky", "x")}

// deadly has a message that kills every process which handles it.
var deadly = []onceward.Message{
	m("good1", "x"), m("twin", "x"), m("kill", "x"), m("good2", "x"), m("twin", "x"), m("good3", "x"), m("emit", "x"),
}

func scenarios() []*scenario {
	small := onceward.Config{MaxBatch: 4}
	one := onceward.Config{MaxBatch: 1}
	waiting := []onceward.Message{m("wait", "x"), m("good1", "x")}
	ordered := []onceward.Message{
		withKey("flaky1", key(0)), withKey("good1", key(1)), withKey("good2", key(0)), withKey("good3", key(1)),
		withKey("perm1", key(1)), withKey("emit1", key(0)), withKey("flaky2", key(1)), withKey("good4", key(1)),
	}
	lanes := onceward.Config{KeepOrder: true, Lanes: 2, MaxBatch: 4}
	return []*scenario{
		{name: "at most once", guarantee: "AtMostOnce", messages: everything, config: small},
		{name: "at least once", guarantee: "AtLeastOnce", messages: everything, config: small},
		{name: "at least once, kept by the source", guarantee: "AtLeastOnce", messages: except(everything, "emit"), sourceKeeps: true, config: small},
		{name: "at least once, no hints", guarantee: "AtLeastOnce", messages: few, noHints: true, config: small},
		{name: "effectively once", guarantee: "EffectivelyOnce", messages: everything, waiting: waiting, config: small},
		{name: "effectively once, one by one", guarantee: "EffectivelyOnce", messages: few, waiting: waiting, config: one},
		{name: "effectively once, no hints", guarantee: "EffectivelyOnce", messages: few, noHints: true, config: small},
		{name: "effectively once, ends", guarantee: "EffectivelyOnce", messages: few, waiting: waiting, ends: true, config: small},
		{name: "effectively once, batch handler", guarantee: "EffectivelyOnceBatch", messages: few, waiting: waiting, config: small},
		{name: "effectively once, all good", guarantee: "EffectivelyOnce", messages: fine, config: small},
		{name: "effectively once, pairs", guarantee: "EffectivelyOnce", messages: pairs, config: small},
		{name: "effectively once, rivals", guarantee: "EffectivelyOnce", messages: rivals, config: one},
		{name: "effectively once, twins", guarantee: "EffectivelyOnce", messages: twins, config: small},
		{name: "effectively once, it kills", guarantee: "EffectivelyOnce", messages: deadly, config: small},
		{name: "effectively once, it kills, no hints", guarantee: "EffectivelyOnce", messages: deadly, noHints: true, config: small},
		{name: "at least once, it kills", guarantee: "AtLeastOnce", messages: deadly, config: small},
		{name: "effectively once, in order", guarantee: "EffectivelyOnce", messages: ordered, config: lanes},
		{name: "effectively once, one key", guarantee: "EffectivelyOnce", messages: oneKey, config: onceward.Config{KeepOrder: true, MaxBatch: 4}},
		{name: "effectively once, own queue", guarantee: "EffectivelyOnce", messages: ordered, ownQueue: true, config: small},
		{name: "effectively once, own queue, in order", guarantee: "EffectivelyOnce", messages: ordered, ownQueue: true, config: lanes},
	}
}

// key is a key whose messages go to a lane of two.
func key(lane int) string {
	for i := 0; ; i++ {
		if k := fmt.Sprintf("k%d.%d", lane, i); onceward.LaneOf(k, 2) == lane {
			return k
		}
	}
}

func except(ms []onceward.Message, kinds ...string) (left []onceward.Message) {
	for _, m := range ms {
		if !strings.Contains(strings.Join(kinds, " "), kind(m.ID)) || m.ID == "" {
			left = append(left, m)
		}
	}
	return left
}

// explorer counts executions and reports what goes wrong.
type explorer struct {
	*testing.T
	sc         *scenario
	executions int
	steps      int
	caught     string // the first problem, if it is wanted
	wanted     bool
}

func (x *explorer) run(p plan, random *rand.Rand) result {
	r := execute(x.T, x.sc, p, random)
	x.executions++
	x.steps += r.steps
	if len(r.problems) > 0 {
		x.report(r)
	}
	return r
}

func (x *explorer) report(r result) {
	if x.wanted {
		if x.caught == "" {
			x.caught = fmt.Sprintf("%s (%s)", r.problems[0], r.plan)
		}
		return
	}
	const most = 400
	trace := r.trace
	if len(trace) > most && os.Getenv("ONCEWARD_REPLAY") == "" {
		trace = append(trace[:most:most], "…")
	}
	x.Fatalf("%s\n%s\nONCEWARD_REPLAY='%s: %s'", strings.Join(r.problems, "\n"), strings.Join(trace, "\n"), x.sc.name, r.plan)
}

func (x *explorer) done() bool { return x.Failed() || x.caught != "" }

// deaths lets one process die at each step, and then two.
func (x *explorer) deaths(pairs int) {
	base := x.run(nil, nil)
	var firsts []plan
	total := 0
	var lengths []int
	for i := 0; i < base.steps && !x.done(); i++ {
		p := plan{{at: i, do: 'd'}}
		r := x.run(p, nil)
		firsts, lengths, total = append(firsts, p), append(lengths, r.steps), total+r.steps-i-1
	}
	stride := max(1, total/max(pairs, 1))
	n := 0
	for i, p := range firsts {
		for j := i + 1; j < lengths[i] && !x.done(); j++ {
			if n++; n%stride == 0 {
				x.run(append(p[:1:1], event{at: j, do: 'd'}), nil)
			}
		}
	}
}

// faults lets each step fail.
func (x *explorer) faults() {
	base := x.run(nil, nil)
	for i := 0; i < base.steps && !x.done(); i++ {
		for _, do := range []byte{'e', 'c'} {
			if do == 'e' || inTx(base.trace[i]) {
				x.run(plan{{at: i, do: do}}, nil)
			}
		}
	}
}

func inTx(point string) bool {
	for _, op := range []string{" begin ", " claim ", " append ", " commit before"} {
		if strings.Contains(point, op) {
			return true
		}
	}
	return false
}

// stops tells the process to stop at each step, and lets a later step of its end fail.
func (x *explorer) stops() {
	base := x.run(nil, nil)
	for i := 0; i < base.steps && !x.done(); i++ {
		stop := event{at: i, do: 't'}
		x.run(plan{stop}, nil)
		for j := i; j < min(i+4, base.steps) && !x.done(); j++ {
			if (i+j)%2 == 0 || width() > 1 {
				x.run(plan{stop, {at: j, do: 'e'}}, nil)
			}
		}
	}
}

// switches lets, at each step, and at each two, another one go first.
func (x *explorer) switches(pairs int, deaths bool) {
	base := x.run(nil, nil)
	type first struct {
		p plan
		r result
	}
	var firsts []first
	total := 0
	for i := 0; i < base.steps && !x.done(); i++ {
		for arg := 1; arg < base.widths[i]; arg++ {
			p := plan{{at: i, do: 's', arg: arg}}
			r := x.run(p, nil)
			firsts, total = append(firsts, first{p, r}), total+r.steps-i-1
		}
	}
	stride, n := max(1, total/max(pairs, 1)), 0
	for _, f := range firsts {
		for j := f.p[0].at + 1; j < f.r.steps && !x.done(); j++ {
			if n++; n%stride != 0 {
				continue
			}
			if f.r.widths[j] > 1 {
				x.run(append(f.p[:1:1], event{at: j, do: 's', arg: 1}), nil)
			}
			if deaths {
				x.run(append(f.p[:1:1], event{at: j, do: 'd'}), nil)
			}
		}
	}
}

// walks makes random choices.
func (x *explorer) walks(n int) {
	for i := 0; i < n && !x.done(); i++ {
		x.run(nil, rand.New(rand.NewPCG(exploreSeed(), uint64(i))))
	}
}

func exploreSeed() uint64 {
	n, err := strconv.ParseUint(os.Getenv("ONCEWARD_SEED"), 10, 64)
	if err != nil {
		return 1
	}
	return n
}

func width() int {
	n, err := strconv.Atoi(os.Getenv("ONCEWARD_EXPLORE"))
	if err != nil {
		return 1
	}
	return n
}

func explore(t *testing.T, sc *scenario, how func(x *explorer)) {
	t.Run(sc.name, func(t *testing.T) {
		t.Parallel()
		x := &explorer{T: t, sc: sc}
		if replay := os.Getenv("ONCEWARD_REPLAY"); replay != "" {
			name, rest, _ := strings.Cut(replay, ": ")
			if name != sc.name {
				t.Skip("another one is replayed")
			}
			p, err := parsePlan(rest)
			if err != nil && rest != "" {
				t.Fatal(err)
			}
			for range tries {
				x.run(p, nil)
			}
			return
		}
		how(x)
		t.Logf("%d executions, %d steps", x.executions, x.steps)
	})
}

func TestExploreDeaths(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios() {
		explore(t, sc, func(x *explorer) {
			x.deaths(40 * width())
			x.faults()
			x.stops()
		})
	}
}

// several makes scenarios with two consumers.
func several() (scs []*scenario) {
	for _, sc := range scenarios() {
		if sc.ends {
			continue
		}
		c := *sc
		c.name, c.consumers = "two, "+sc.name, 2
		scs = append(scs, &c)
	}
	return scs
}

func TestExploreInterleavings(t *testing.T) {
	t.Parallel()
	for _, sc := range several() {
		explore(t, sc, func(x *explorer) { x.switches(40*width(), true) })
	}
}

// walkers are scenarios for many deaths and failures.
func walkers() []*scenario {
	scs := append(scenarios(), several()...)
	for i, sc := range scs {
		c := *sc
		c.name = "walk, " + sc.name
		if c.guarantee != "AtMostOnce" {
			c.config.Attempts = 16 // more than there are deaths and failures
		}
		scs[i] = &c
	}
	return scs
}

// TestExploreWalks goes beyond what can be enumerated: several deaths, failures and changes of turn.
func TestExploreWalks(t *testing.T) {
	t.Parallel()
	for _, sc := range walkers() {
		explore(t, sc, func(x *explorer) { x.walks(10 * width()) })
	}
}

// tries is how often a plan is run to meet the same execution again: where a select of the consumer
// finds two channels ready, the runtime chooses.
const tries = 20

// TestExploreReplays makes sure that an execution happens again if its plan is run again. Processes that
// are told to stop are left out: with a context that has ended, too many selects have a choice. So are two
// that wait within the source for the same message to become due.
func TestExploreReplays(t *testing.T) {
	t.Parallel()
	for _, sc := range walkers() {
		if sc.noStops = true; sc.sourceKeeps && sc.consumers > 1 {
			continue
		}
		explore(t, sc, func(x *explorer) {
			first := x.run(nil, rand.New(rand.NewPCG(exploreSeed(), 0)))
			for range tries {
				if again := x.run(first.plan, nil); slices.Equal(first.trace, again.trace) {
					return
				}
			}
			t.Errorf("%s: never the same again", first.plan)
		})
	}
}
