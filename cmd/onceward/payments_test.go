package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

const exampleDir = "../../examples/payments"

// The program applies every payment of the example once: counts, balances and the ledger are what
// this file computes from the same lines without it.
func TestPaymentsExample(t *testing.T) {
	bin := buildProgram(t)
	want := expectPayments(t)

	t.Run("read twice", func(t *testing.T) {
		dir := copyExample(t)
		if got := runProgram(t, bin, dir); got != want.firstRun() {
			t.Errorf("first run:\n got %+v\nwant %+v", got, want.firstRun())
		}
		want.check(t, dir)
		if got := runProgram(t, bin, dir); got != want.laterRun() {
			t.Errorf("second run:\n got %+v\nwant %+v", got, want.laterRun())
		}
		want.check(t, dir)
	})

	t.Run("killed", func(t *testing.T) {
		killMany(t, bin, want)
	})
}

// The numbers that the example's page promises are those that this file computes.
func TestPaymentsExamplePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(exampleDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| *(.+?) *\| *([\d.]+) *\|$`).FindAllSubmatch(page, -1) {
		got[string(row[1])] = string(row[2])
	}
	if want := expectPayments(t).page(); !maps.Equal(got, want) {
		t.Errorf("the page says\n%v\nbut should say\n%v", got, want)
	}
}

// killMany kills the program again and again at random points of its life. What it leaves must be
// consistent each time, and once it is left alone everything must have happened once. When all is
// done before the kills are, it starts anew.
func killMany(t *testing.T, bin string, want *expectation) {
	t.Helper()
	kills := envInt(t, "ONCEWARD_KILLS", 200)
	seed := envInt(t, "ONCEWARD_KILL_SEED", int(time.Now().UnixNano()&0xFFFFFF))
	t.Logf("%d kills; to repeat the same points: ONCEWARD_KILL_SEED=%d", kills, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }

	const often = 10 // every so many lives one is longer, and the database is looked at
	short, long := 80*time.Millisecond, 600*time.Millisecond
	dir, applied, most, files := copyExample(t), 0, 0, 1
	for life := 1; life <= kills; life++ {
		if life%often > 0 {
			liveFor(t, bin, dir, time.Millisecond+upTo(short))
			continue
		}
		liveFor(t, bin, dir, short+upTo(long))
		before := applied
		applied = want.checkConsistent(t, dir)
		most = max(most, applied)
		switch applied {
		case want.processed:
			want.finish(t, bin, dir)
			dir, applied = copyExample(t), 0
			files++
		case before:
			long = min(long*3/2, 10*time.Second) // a slow machine: nothing happens in such short lives
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	want.finish(t, bin, dir)
	if again := runProgram(t, bin, dir); again != want.laterRun() {
		t.Errorf("one more run:\n got %+v\nwant %+v", again, want.laterRun())
	}
	want.check(t, dir)
	t.Logf("the file was applied %d times, in %d lives", files, kills)
	if most == 0 && kills >= often {
		t.Error("no life was long enough to apply a payment, so the kills show nothing")
	}
}

// finish lets the program run to its end.
func (e *expectation) finish(t *testing.T, bin, dir string) {
	t.Helper()
	last := runProgram(t, bin, dir)
	if sum := last.Processed + last.Duplicates + last.Skipped + last.Dead; last.Received != e.received || sum != e.received ||
		last.Skipped != e.skipped || last.Processed > e.processed || last.Dead > e.deadLetters() {
		t.Errorf("the run after the kills: %+v does not add up with %+v", last, e.firstRun())
	}
	e.check(t, dir)
}

// liveFor starts the program and kills it after d, if it has not finished by then.
func liveFor(t *testing.T, bin, dir string, d time.Duration) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bin, "run", "onceward.yaml")
	cmd.Dir, cmd.Stderr = dir, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	death := time.NewTimer(d)
	defer death.Stop()
	select {
	case <-death.C:
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		var killed *exec.ExitError
		if err := <-ended; err != nil && !errors.As(err, &killed) {
			t.Fatal(err)
		}
	case err := <-ended:
		if err != nil {
			t.Fatalf("the program ended by itself: %v\n%s", err, stderr.String())
		}
	}
}

// summary is the line that the program prints for a consumer.
type summary struct {
	Consumer   string `json:"consumer"`
	Received   int    `json:"received"`
	Processed  int    `json:"processed"`
	Duplicates int    `json:"duplicates"`
	Skipped    int    `json:"skipped"`
	Dead       int    `json:"dead"`
	Waiting    int    `json:"waiting"`
	GivenBack  int    `json:"given_back"`

	WaitingAtStart int `json:"waiting_at_start"`
}

func runProgram(t *testing.T, bin, dir string) summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, "run", "--summary", "json", "onceward.yaml")
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("onceward run: %v\n%s", err, stderr.String())
	}
	var s summary
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || d.More() {
		t.Fatalf("standard output is not one summary (%v):\n%s", err, out)
	}
	return s
}

func buildProgram(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "onceward")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func copyExample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"onceward.yaml", "schema.sql", "payments.ndjson"} {
		content, err := os.ReadFile(filepath.Join(exampleDir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func envInt(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Reasons of the example's dead letters, as its page calls them.
const (
	notJSON        = "dead: not JSON, or a blank line"
	noID           = "dead: the id is missing, empty or no text"
	conflict       = "dead: an id that was used for another payment"
	unknownAccount = "dead: no such account"
)

// expectation is what must become of the lines of the example.
type expectation struct {
	received, processed, duplicates, skipped int

	dead     map[string]int // by reason
	opening  map[string]int64
	balances map[string]int64
	ledger   map[string]entry // by payment id
}

type entry struct {
	account string
	cents   int64
}

// expectPayments reads the example's lines and says what must become of them.
func expectPayments(t *testing.T) *expectation {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(exampleDir, "payments.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	return expectLines(t, string(content))
}

// expectLines is expectPayments for other lines.
func expectLines(t *testing.T, content string) *expectation {
	t.Helper()
	schema, err := os.ReadFile(filepath.Join(exampleDir, "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	db := openDatabase(t, ":memory:")
	if _, err := db.ExecContext(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	e := &expectation{dead: map[string]int{}, opening: readBalances(t, db, sqliteBytes), ledger: map[string]entry{}}
	e.balances = maps.Clone(e.opening)

	lines := strings.Split(content, "\n")
	if lines[len(lines)-1] != "" {
		t.Fatal("the file does not end with a line feed")
	}
	bodies := map[string]string{} // of the payments made, by id
	parked := map[[2]string]bool{}
	for _, line := range lines[:len(lines)-1] {
		e.received++
		e.line(t, line, bodies, parked)
	}
	return e
}

func (e *expectation) line(t *testing.T, line string, bodies map[string]string, parked map[[2]string]bool) {
	t.Helper()
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if !json.Valid([]byte(line)) || d.Decode(&m) != nil {
		e.dead[notJSON]++
		return
	}
	if m["type"] != "payment" {
		e.skipped++
		return
	}
	id, _ := m["payment_id"].(string)
	account, _ := m["account"].(string)
	body, made := bodies[id]
	_, known := e.opening[account]
	switch {
	case id == "":
		e.dead[noID]++
	case parked[[2]string{id, line}], made && body == line:
		e.duplicates++
	case made:
		e.dead[conflict]++
		parked[[2]string{id, line}] = true
	case !known:
		e.dead[unknownAccount]++
		parked[[2]string{id, line}] = true
	default:
		e.processed++
		bodies[id] = line
		amount := cents(t, m["amount"])
		e.balances[account] -= amount
		e.ledger[id] = entry{account, amount}
	}
}

func cents(t *testing.T, amount any) int64 {
	t.Helper()
	n, _ := amount.(json.Number)
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		t.Fatalf("%v is no amount", amount)
	}
	r.Mul(r, big.NewRat(100, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		t.Fatalf("%v is no whole number of cents", amount)
	}
	return r.Num().Int64()
}

func (e *expectation) deadLetters() int {
	n := 0
	for _, of := range e.dead {
		n += of
	}
	return n
}

func (e *expectation) firstRun() summary {
	return summary{
		Consumer: "ledger", Received: e.received, Processed: e.processed, Duplicates: e.duplicates,
		Skipped: e.skipped, Dead: e.deadLetters(),
	}
}

// laterRun is a run over the same file when everything has happened.
func (e *expectation) laterRun() summary {
	return summary{Consumer: "ledger", Received: e.received, Duplicates: e.received - e.skipped, Skipped: e.skipped}
}

// page is the table of the example's page.
func (e *expectation) page() map[string]string {
	total := int64(0)
	for _, b := range e.balances {
		total += b
	}
	rows := map[string]string{
		"received (lines)":        strconv.Itoa(e.received),
		"processed":               strconv.Itoa(e.processed),
		"duplicates":              strconv.Itoa(e.duplicates),
		"skipped":                 strconv.Itoa(e.skipped),
		"dead":                    strconv.Itoa(e.deadLetters()),
		"rows in ledger":          strconv.Itoa(len(e.ledger)),
		"sum of balances, in EUR": fmt.Sprintf("%d.%02d", total/100, total%100),
	}
	for reason, n := range e.dead {
		rows[reason] = strconv.Itoa(n)
	}
	return rows
}

// check compares the database of dir: every balance, and every payment once in the ledger.
func (e *expectation) check(t *testing.T, dir string) {
	t.Helper()
	db := openDatabase(t, filepath.Join(dir, "payments.db"))
	defer closeDatabase(t, db)
	e.checkDatabase(t, db, sqliteBytes)
}

func (e *expectation) checkDatabase(t *testing.T, db *sql.DB, bytes textBytes) {
	t.Helper()
	if got := readBalances(t, db, bytes); !maps.Equal(got, e.balances) {
		t.Errorf("balances:\n got %v\nwant %v", got, e.balances)
	}
	got := readLedger(t, db, bytes)
	for id, want := range e.ledger {
		if es := got[id]; !slices.Equal(es, []entry{want}) {
			t.Errorf("payment %q is in the ledger as %v, want it once as %v", id, es, want)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		t.Errorf("the ledger has payments that should not have been made: %v", got)
	}
}

// checkConsistent looks at a database whose program was killed: no payment is there twice, and the
// balances are what the ledger says. It returns how many payments there are.
func (e *expectation) checkConsistent(t *testing.T, dir string) int {
	t.Helper()
	file := filepath.Join(dir, "payments.db")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	db := openDatabase(t, file)
	defer closeDatabase(t, db)
	var tables int
	const count = `SELECT count(*) FROM sqlite_schema WHERE name IN ('accounts', 'ledger')`
	if err := db.QueryRowContext(t.Context(), count).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables < 2 {
		return 0
	}
	return e.checkMoney(t, db, sqliteBytes)
}

// checkMoney compares the balances with the ledger and returns how many payments there are.
func (e *expectation) checkMoney(t *testing.T, db *sql.DB, bytes textBytes) int {
	t.Helper()
	// One snapshot: a server may still be committing what a killed process has sent.
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	balances := maps.Clone(e.opening)
	ledger := readLedger(t, tx, bytes)
	for id, es := range ledger {
		if len(es) > 1 {
			t.Errorf("payment %q was made %d times", id, len(es))
		}
		for _, made := range es {
			balances[made.account] -= made.cents
		}
	}
	got := readBalances(t, tx, bytes)
	if len(got) == 0 && len(ledger) == 0 {
		return 0 // killed between the statements of schema.sql
	}
	if !maps.Equal(got, balances) {
		t.Errorf("balances do not match the ledger:\n got %v\nwant %v", got, balances)
	}
	return len(ledger)
}

func openDatabase(t *testing.T, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // :memory: is a database per connection
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func closeDatabase(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// textBytes is SQL for the bytes of a text, so that nothing interprets them on the way.
type textBytes string

const sqliteBytes textBytes = "CAST(%s AS BLOB)"

func (b textBytes) of(column string) string { return strings.ReplaceAll(string(b), "%s", column) }

func readBalances(t *testing.T, db querier, bytes textBytes) map[string]int64 {
	t.Helper()
	balances := map[string]int64{}
	query(t, db, "SELECT "+bytes.of("id")+", cents FROM accounts", func(scan func(...any) error) error {
		var id []byte
		var cents int64
		err := scan(&id, &cents)
		balances[string(id)] = cents
		return err
	})
	return balances
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func readLedger(t *testing.T, db querier, bytes textBytes) map[string][]entry {
	t.Helper()
	ledger := map[string][]entry{}
	all := "SELECT " + bytes.of("payment_id") + ", " + bytes.of("account") + ", cents FROM ledger"
	query(t, db, all, func(scan func(...any) error) error {
		var id, account []byte
		var cents int64
		err := scan(&id, &account, &cents)
		ledger[string(id)] = append(ledger[string(id)], entry{string(account), cents})
		return err
	})
	return ledger
}

func query(t *testing.T, db querier, text string, row func(scan func(...any) error) error) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
