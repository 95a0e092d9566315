package conformance

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/internal/crash"
	"github.com/onceward/onceward/sqlstore"
)

// killJob tells this process, started by a test, what to consume and where to die.
const killJob = "ONCEWARD_TEST_KILL"

type job struct {
	DB    string `json:"db"`
	Lines string `json:"lines"` // the source is this file; else the queue "in" of the store
	Step  int64  `json:"step"`  // the process kills itself at this step; -1: at none
}

const exitByHandler = 137

func jobProcess() func() {
	text := os.Getenv(killJob)
	if text == "" {
		return nil
	}
	return func() {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// run consumes until nothing is left to do.
func (j *job) run() error {
	db, err := sql.Open("sqlite", "file:"+j.DB)
	if err != nil {
		return err
	}
	store, err := sqlstore.SQLite(db, nil)
	if err != nil {
		return err
	}
	step := j.suicide()
	steps := crash.Store(store, step)
	var src onceward.Source = crash.Queue(store.Queue("in"), steps, step)
	if j.Lines != "" {
		src = crash.Source(lineSource(j.Lines), step)
	}
	c, err := onceward.EffectivelyOnce("killed", src, steps, crash.TxHandler(killHandler, step), &onceward.Config{
		Attempts: 3, MaxBatch: 3, Timeout: 10 * time.Second,
		Backoff: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if j.Lines == "" {
		go func() {
			waitIdle(ctx, db)
			cancel()
		}()
	}
	return c.Run(ctx)
}

// suicide kills the process at a step as nothing else does: nothing is unwound, flushed or closed.
func (j *job) suicide() crash.Step {
	var mu sync.Mutex
	var n int64
	return func(_ context.Context, point string) error {
		if crash.Idle(point) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if n == j.Step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		n++
		return nil
	}
}

const leftRows = "SELECT count(*) FROM onceward_queue WHERE queue IN (CAST('in' AS BLOB), CAST('retries' AS BLOB)) AND state < 3"

func waitIdle(ctx context.Context, db *sql.DB) {
	for left := 1; left > 0 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // polling
		if err := db.QueryRowContext(ctx, leftRows).Scan(&left); err != nil {
			left = 1
		}
	}
}

// killHandler does what the id says.
func killHandler(ctx context.Context, tx *sql.Tx, d *onceward.Delivery) error {
	if err := effect(ctx, tx, d.ID); err != nil {
		return err
	}
	switch strings.TrimRight(d.ID, "0123456789") {
	case "exit":
		os.Exit(exitByHandler)
	case "perm":
		return onceward.Permanent(errors.New("no use"))
	case "flaky":
		if d.Attempt == 1 {
			return errors.New("not the first time")
		}
	case "emit":
		d.Emit(onceward.Outbox, "out", &onceward.Message{Body: []byte("emitted")})
	}
	return nil
}

// lineSource is a file of one id per line, read anew by each session. It gives no hints, and keeps
// nothing.
type lineSource string

func (s lineSource) String() string { return "file " + string(s) }

func (lineSource) Capabilities() onceward.Capabilities {
	return onceward.Capabilities{Horizon: onceward.Forever}
}

func (s lineSource) Subscribe(context.Context, onceward.SubscribeParams) (onceward.Session, error) {
	f, err := os.Open(string(s))
	if err != nil {
		return nil, onceward.Permanent(err)
	}
	return &lineSession{f: f, lines: bufio.NewScanner(f), settled: make(chan struct{}, 1)}, nil
}

type lineSession struct {
	f       *os.File
	lines   *bufio.Scanner
	settled chan struct{}

	mu   sync.Mutex
	held int
}

// Receive ends when all lines are settled.
func (n *lineSession) Receive(ctx context.Context, most int) ([]onceward.Incoming, error) {
	var in []onceward.Incoming
	for len(in) < min(most, 4) && n.lines.Scan() {
		id := n.lines.Text()
		in = append(in, onceward.Incoming{Message: onceward.Message{ID: id, Body: []byte(id)}})
	}
	n.mu.Lock()
	n.held += len(in)
	n.mu.Unlock()
	for len(in) == 0 {
		n.mu.Lock()
		held := n.held
		n.mu.Unlock()
		if held == 0 {
			return nil, errors.Join(n.lines.Err(), io.EOF)
		}
		select {
		case <-n.settled:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return in, nil
}

func (n *lineSession) Settle(_ context.Context, ss ...onceward.Settlement) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range ss {
		n.held--
	}
	select {
	case n.settled <- struct{}{}:
	default:
	}
	return nil
}

func (n *lineSession) Close(context.Context) error { return n.f.Close() }

// supervised is a database with messages to consume, and what starts processes on it.
type supervised struct {
	*testing.T
	db  *sql.DB
	job job
}

func supervise(t *testing.T, lines bool, ids ...string) *supervised {
	store, db, file := newSQLite(t, "sqlite", 4)
	s := &supervised{T: t, db: db, job: job{DB: file}}
	s.exec("CREATE TABLE sent (id TEXT NOT NULL)")
	for _, id := range ids {
		s.exec("INSERT INTO sent VALUES (?)", id)
		if lines {
			continue
		}
		e := onceward.Entry{Queue: "in", State: onceward.Waiting, Message: onceward.Message{ID: id, Body: []byte(id)}}
		if err := store.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if lines {
		s.job.Lines = filepath.Join(t.TempDir(), "lines")
		if err := os.WriteFile(s.job.Lines, []byte(strings.Join(ids, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *supervised) exec(query string, args ...any) {
	s.Helper()
	if _, err := s.db.ExecContext(s.Context(), query, args...); err != nil {
		s.Fatal(err)
	}
}

func (s *supervised) count(query string) (n int) {
	s.Helper()
	if err := s.db.QueryRowContext(s.Context(), query).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// start runs a process to its end, which is a kill at a step, an exit by the handler or, with true,
// a clean one. The leases of a dead one have run out by then.
func (s *supervised) start(step int64) (clean bool) {
	s.Helper()
	s.exec("UPDATE onceward_queue SET due = 0 WHERE state = 2")
	j := s.job
	j.Step = step
	text, err := json.Marshal(j)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), killJob+"="+string(text))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return true
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || ctx.Err() != nil || !status.Signaled() && status.ExitStatus() != exitByHandler {
		s.Fatalf("step %d: %v\n%s", step, err, out)
	}
	return false
}

// finish starts processes until nothing is left to do.
func (s *supervised) finish() (starts int) {
	s.Helper()
	for starts = 1; starts < 50; starts++ {
		if s.start(-1) && s.count(leftRows) == 0 {
			return starts
		}
	}
	s.Fatal("it never came to an end")
	return starts
}

// check joins what was sent with what has become of it.
func (s *supervised) check(dead ...string) {
	s.Helper()
	rows, err := s.db.QueryContext(s.Context(), `
		SELECT s.id,
			(SELECT count(*) FROM effects e WHERE e.id = s.id),
			(SELECT count(*) FROM onceward_messages m WHERE m.id = s.id AND m.consumer = 'killed'),
			(SELECT count(*) FROM onceward_queue q WHERE CAST(q.msg_id AS TEXT) = s.id AND q.state = 3),
			(SELECT count(*) FROM onceward_queue q WHERE CAST(q.msg_id AS TEXT) LIKE s.id || '#%')
		FROM (SELECT DISTINCT id FROM sent) s`)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		var id string
		var effects, records, letters, emitted int
		if err := rows.Scan(&id, &effects, &records, &letters, &emitted); err != nil {
			s.Fatal(err)
		}
		n++
		isDead := strings.Contains(strings.Join(dead, " "), id)
		want := [4]int{1, 1, 0, 0}
		if isDead {
			want = [4]int{0, 0, 1, 0}
		}
		if strings.HasPrefix(id, "emit") {
			want[3] = 1
		}
		if got := [4]int{effects, records, letters, emitted}; got != want {
			s.Errorf("%s: effects, records, dead letters, emitted = %v, want %v", id, got, want)
		}
	}
	if err := rows.Err(); err != nil || n == 0 {
		s.Fatalf("%d messages, %v", n, err)
	}
	if all := s.count("SELECT count(*) FROM effects"); all != s.count("SELECT count(DISTINCT id) FROM sent")-len(dead) {
		s.Errorf("%d effects", all)
	}
}

// A process that kills itself at any step of its life, twice, and is started again, leaves each effect
// once. The processes wait more than they work, so some steps are tried at the same time.
func TestKillAtEveryStep(t *testing.T) { //nolint:tparallel // only its own steps at the same time
	const atATime = 4
	stride := int64(1)
	if testing.Short() {
		stride = 7
	}
	for _, lines := range []bool{false, true} {
		ids := []string{"good1", "emit1", "flaky1", "perm1", "good2", "good3"}
		if lines {
			ids = append(ids, "emit1", "good1")
		}
		for from := range int64(atATime) {
			t.Run(fmt.Sprintf("lines=%v from %d", lines, from), func(t *testing.T) {
				t.Parallel()
				killFrom(t, from*stride, atATime*stride, lines, ids)
			})
		}
	}
}

func killFrom(t *testing.T, step, stride int64, lines bool, ids []string) {
	t.Helper()
	for reached := true; reached && !t.Failed(); step += stride {
		if step > 1000 {
			t.Fatal("the steps never end")
		}
		t.Run(strconv.FormatInt(step, 10), func(t *testing.T) {
			s := supervise(t, lines, ids...)
			if reached = !s.start(step); reached {
				s.start(step)
			}
			s.finish()
			s.check("perm1")
		})
	}
}

// A message whose handler ends the process becomes a dead letter, and its neighbours do not.
func TestHandlerThatExits(t *testing.T) {
	for _, lines := range []bool{false, true} {
		t.Run("lines="+strconv.FormatBool(lines), func(t *testing.T) {
			s := supervise(t, lines, "good1", "good2", "exit1", "good3", "emit1", "good4")
			starts := s.finish()
			t.Logf("%d processes", starts)
			s.check("exit1")
			if n := s.count("SELECT attempts FROM onceward_queue WHERE state = 3"); n != 3 {
				t.Errorf("a dead letter after %d attempts, want 3", n)
			}
		})
	}
}
