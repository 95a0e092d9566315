package conformance

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
)

// childFile names the database in which this process, started by a test, is to work until it is
// killed.
const childFile = "ONCEWARD_TEST_CHILD"

func childProcess() func() {
	file := os.Getenv(childFile)
	if file == "" {
		return nil
	}
	return func() {
		if err := consumeForEver(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// consumeForEver handles messages 0, 1, 2 … from where the database says, and prints each after its
// commit. Its handler reads before it writes.
func consumeForEver(file string) error {
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return err
	}
	store, err := sqlstore.SQLite(db, &sqlstore.Config{LockTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for {
		var id string
		err := store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE id NOT LIKE 'of %'").Scan(&n); err != nil {
				return err
			}
			id = strconv.Itoa(n)
			r := onceward.Record{ID: onceward.StoredID(id), Fingerprint: 1}
			found, err := store.Claim(ctx, tx, "c", []onceward.Record{r})
			if err != nil {
				return err
			}
			if found[0] != onceward.Fresh {
				return fmt.Errorf("message %s has a record and no effect: found %d", id, found[0])
			}
			if err := effect(ctx, tx, id); err != nil {
				return err
			}
			return store.Append(ctx, tx, onceward.Outbox, &onceward.Message{ID: id + " done"})
		})
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
}

func startChild(t *testing.T, file string) (lines *bufio.Scanner, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it is killed by hand
	cmd.Env = append(os.Environ(), childFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
		}
	}
	t.Cleanup(func() {
		kill()
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out), kill
}

// A process that is killed at any point leaves a record for every effect and the other way round,
// and what it has reported as committed is there.
func TestSQLiteKill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	db := openDB(t, "sqlite", file, "", 1)
	s := openSQLite(t, db)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effects (id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		lines, kill := startChild(t, file)
		last := ""
		for n := 0; n < 20+7*round && lines.Scan(); n++ {
			last = lines.Text()
		}
		kill()
		for lines.Scan() { // what it printed before it died
			last = lines.Text()
		}
		got := effects(t, db)
		reported, err := strconv.Atoi(last)
		if err != nil {
			t.Fatalf("the child printed %q", last)
		}
		if len(got) < reported+1 {
			t.Fatalf("message %d was committed, and only %d effects are there", reported, len(got))
		}
		consistent(t, s, got)
	}
}

func consistent(t *testing.T, s *sqlstore.Store, got map[string]int) {
	t.Helper()
	rs := make([]onceward.Record, len(got)+1)
	for i := range rs {
		rs[i].ID = strconv.Itoa(i)
	}
	recorded, err := s.Recorded(t.Context(), "c", rs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rs {
		if want := i < len(got); recorded[i] != want || got[r.ID] != 1 && want {
			t.Errorf("message %s: recorded %v, %d effects", r.ID, recorded[i], got[r.ID])
		}
	}
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) != 1 || stats[0].Waiting != int64(len(got)) {
		t.Errorf("%d effects, and queues %+v", len(got), stats)
	}
}

// Two processes and eight goroutines write the same file, with handlers that read first: nobody
// meets SQLITE_BUSY.
func TestSQLiteProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	db := openDB(t, "sqlite", file, "", 8)
	s := openSQLite(t, db)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE effects (id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	lines, kill := startChild(t, file)
	done := make(chan error, 8)
	for g := range 8 {
		go func() { done <- readFirst(t.Context(), s, g, 20) }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if !lines.Scan() {
		t.Error("the other process got nothing done")
	}
	kill()
	for g := range 8 {
		if n := effects(t, db)[fmt.Sprintf("of %d", g)]; n != 20 {
			t.Errorf("goroutine %d has %d effects, want 20", g, n)
		}
	}
}

func readFirst(ctx context.Context, s *sqlstore.Store, g, n int) error {
	for i := range n {
		err := s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM effects").Scan(&n); err != nil {
				return err
			}
			r := onceward.Record{ID: fmt.Sprintf("%d of %d", i, g)}
			if _, err := s.Claim(ctx, tx, "d", []onceward.Record{r}); err != nil {
				return err
			}
			return effect(ctx, tx, fmt.Sprintf("of %d", g))
		})
		if err != nil {
			return fmt.Errorf("goroutine %d, message %d: %w", g, i, err)
		}
	}
	return nil
}
