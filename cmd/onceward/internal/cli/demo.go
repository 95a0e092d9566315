package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

type demoCmd struct {
	Messages int    `default:"100000" help:"How many payments, repeats included."`
	Kills    int    `default:"20" help:"How often the worker is killed on the way."`
	Quick    bool   `help:"The same with 5,000 payments and 3 kills."`
	Keep     string `help:"Work in this new directory and leave it there." placeholder:"DIR"`
	JSON     bool   `help:"Print the results as JSON, one object a line."`
}

// Validate is called by the command line's parser.
func (c *demoCmd) Validate() error {
	if c.Messages < 100 || c.Kills < 0 || c.Kills > c.Messages/10 {
		return errors.New("--messages must be 100 or more, and --kills at most a tenth of it")
	}
	return nil
}

// Run is the command.
func (c *demoCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Quick {
		c.Messages, c.Kills = 5000, 3
	}
	dir := c.Keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "onceward-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // nothing in it is secret
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	d := &demo{cmd: c, app: a, dir: dir, exe: exe, term: newTerminal(a.err)}
	results, err := d.run(ctx)
	d.term.show("")
	if err != nil {
		return err
	}
	if err := d.report(results); err != nil {
		return err
	}
	if r := results[0]; r.Lost != 0 || r.Repeated != 0 || r.Off != 0 {
		return errors.New("payments were lost or repeated by Onceward: this is a fault, please report it")
	}
	return nil
}

// demo works in a directory of its own.
type demo struct {
	cmd  *demoCmd
	app  *app
	dir  string
	exe  string
	term *terminal
}

// way is one way to apply payments.
type way struct {
	key, name string
	share     int // it gets one of so many of the payments
}

// The ways that are compared, the first of them Onceward.
var ways = []way{
	{"onceward", "Onceward, effectively-once", 1},
	{"lookup", "look up; then effect and mark, one transaction a message", 1},
	{"effect-first", "look up; effect; mark in a second transaction", 5},
	{"mark-first", "look up; mark; effect in a second transaction", 5},
}

// result is what a way came to, as the database has it.
type result struct {
	Way      string  `json:"way"`
	Messages int     `json:"messages"`
	Kills    int     `json:"kills"`
	Lost     int64   `json:"lost"`
	Repeated int64   `json:"repeated"`
	Expected int64   `json:"expected_cents"`
	Actual   int64   `json:"actual_cents"`
	Off      int64   `json:"off_cents"`
	Seconds  float64 `json:"seconds"`
	// Ratio compares the time, restarts included, with Onceward's for as many messages.
	Ratio float64 `json:"time_ratio,omitempty"`

	name string
}

func (d *demo) run(ctx context.Context) (results []result, err error) {
	for _, w := range ways {
		r, err := d.try(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
		if first := results[0]; r.Messages == first.Messages {
			results[len(results)-1].Ratio = r.Seconds / first.Seconds
		}
	}
	return results, nil
}

// try lets one way apply payments while it is killed, and counts.
func (d *demo) try(ctx context.Context, w way) (r result, err error) {
	dir := filepath.Join(d.dir, w.key)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // nothing in it is secret
		return r, err
	}
	messages := d.cmd.Messages / w.share
	data, err := writePayments(dir, messages)
	if err != nil {
		return r, err
	}
	db, err := sql.Open("sqlite", database.SQLiteDSN(filepath.Join(dir, "demo.db")))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := data.load(ctx, db); err != nil {
		return r, err
	}
	args := []string{"run", filepath.Join(dir, "onceward.yaml"), "--log-level", "error"}
	if w.key != ways[0].key {
		args = []string{"demo-worker", w.key, dir}
	}
	k := &killer{demo: d, db: db, args: args, name: w.name, unique: data.unique, targets: targets(data.unique, d.cmd.Kills)}
	began := time.Now()
	if err := k.drive(ctx); err != nil {
		return r, err
	}
	r = result{Way: w.key, name: w.name, Messages: messages, Kills: k.killed, Seconds: time.Since(began).Seconds()}
	return r, count(ctx, db, &r)
}

// count asks the database what has become of the payments.
func count(ctx context.Context, db *sql.DB, r *result) error {
	const query = `SELECT
		(SELECT count(*) FROM expected WHERE id NOT IN (SELECT id FROM ledger)),
		(SELECT count(*) - count(DISTINCT id) FROM ledger),
		(SELECT sum(cents) FROM expected),
		(SELECT sum(cents) FROM accounts)`
	err := db.QueryRowContext(ctx, query).Scan(&r.Lost, &r.Repeated, &r.Expected, &r.Actual)
	r.Off = r.Actual - r.Expected
	return err
}

func (d *demo) report(results []result) error {
	if d.cmd.JSON {
		return json1(d.app.out, results, func(r result) any { return r })
	}
	first := results[0]
	text := fmt.Sprintf("%s payments, one in twenty of them a repeat, into an SQLite database.\nThe worker was killed (SIGKILL) %d times on the way and started again. Then the database was asked.\n\n",
		thousands(int64(first.Messages)), first.Kills)
	text += fmt.Sprintf("expected balance %s, actual balance %s: lost %d, repeated %d\n\n", money(first.Expected), money(first.Actual), first.Lost, first.Repeated)
	if err := d.app.write(text); err != nil {
		return err
	}
	t := newTable(d.app.out, "HOW", "MESSAGES", "KILLS", "LOST", "REPEATED", "BALANCE OFF BY", "TIME")
	for _, r := range results {
		ratio := ""
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.1f×", r.Ratio)
		}
		t.row(r.name, thousands(int64(r.Messages)), fmt.Sprint(r.Kills), thousands(r.Lost), thousands(r.Repeated), money(r.Off), ratio)
	}
	t.after(`
The second way is right here, with one process at a time; it pays with a commit for every message.
The last two are what is often written instead: a kill between the two transactions repeats a payment,
or loses one. Times include the restarts.
`)
	if err := t.flush(); err != nil {
		return err
	}
	if d.cmd.Keep != "" {
		return d.app.write(fmt.Sprintf("\nThe files are in %s\n", d.cmd.Keep))
	}
	return nil
}

// money is an amount of cents for people.
func money(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%s.%02d", sign, thousands(cents/100), cents%100)
}
