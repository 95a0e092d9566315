package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onceward/onceward"

	"github.com/onceward/onceward/cmd/onceward/internal/config"
	"github.com/onceward/onceward/cmd/onceward/internal/database"
)

func TestDatabaseOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.ledger(0)
	b.exec("UPDATE onceward_schema SET version = 99")
	for _, args := range []string{"run", "check", "publish", "stats", "dead list", "migrate up", "migrate status"} {
		args := append(strings.Fields(args), "onceward.yaml")
		if args[0] == "publish" {
			args = append(args, "in", "payments.ndjson", "--id", "$.id")
		}
		_, errs := b.run(1, args...)
		contains(t, errs, "was made by a newer onceward: its tables have version 99, and this program is too old")
		if strings.Contains(strings.ToLower(errs), "migrate") {
			t.Errorf("%s: migrating can't help: %s", args, errs)
		}
	}
}

func TestDatabaseThatBecomesNewerIsNotToBeMigrated(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.ledger(0)
	cfg, err := config.Load(filepath.Join(b.dir, "onceward.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close() //nolint:errcheck // nothing was written
	ended := fmt.Errorf("consumer ledger: %w", onceward.ErrNoSchema)
	if got := o.schemaOf(t.Context(), ended); !errors.Is(got, ended) {
		t.Errorf("tables of this version: %v", got)
	}
	b.exec("UPDATE onceward_schema SET version = 99")
	err = o.schemaOf(t.Context(), ended)
	contains(t, explained(err.Error(), err), "was made by a newer onceward")
	if errors.Is(err, onceward.ErrNoSchema) {
		t.Error("migrating would be the advice")
	}
}

// locked locks the box's database, or another file, against writers until free is called.
func (b *box) locked(name string) (free func()) {
	b.Helper()
	db, err := sql.Open("sqlite", database.SQLiteDSN(filepath.Join(b.dir, name)))
	if err != nil {
		b.Fatal(err)
	}
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.ExecContext(b.Context(), "BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS held (x)"); err != nil {
		b.Fatal(err)
	}
	free = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(b.Context()), "ROLLBACK")
		if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(free)
	return free
}

func TestRunWaitsForALockedDatabase(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"a new file": false, "with tables": true} {
		b := newBox(t, pay("1", "a", 1))
		if made {
			b.ledger(0)
			b.write("payments.ndjson", pay("2", "b", 1))
		}
		free := b.locked("payments.db")
		p := b.start("run", "onceward.yaml", "--json", "--give-up-after", "1m")
		p.line("waiting for the database")
		free()
		p.end(0)
		if s := parseSummaries(t, p.stdout.String()); len(s) != 1 || s[0].Processed != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestRunGivesALockedDatabaseUp(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.locked("payments.db")
	_, errs := b.run(1, "run", "onceward.yaml", "--give-up-after", "3s")
	contains(t, errs, "the database was not ready for 3s")
	if n := strings.Count(errs, "waiting for the database"); n != 1 {
		t.Errorf("the log says %d times that it waits:\n%s", n, errs)
	}
}

func TestRunWithAQueueWaitsUntilASignal(t *testing.T) {
	t.Parallel()
	b := queueBox(t)
	b.locked("payments.db")
	p := b.start("run", "onceward.yaml", "--give-up-after", "1ms")
	p.line("waiting for the database")
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.line("stopped before anything was read")
	p.end(0)
}

func TestRunEndsWhereNoWaitingHelps(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.write("payments.db", strings.Repeat("no database ", 1000))
	_, errs := b.run(1, "run", "onceward.yaml", "--give-up-after", "10m")
	contains(t, errs, "file is not a database")
}

func TestNoIDAnywhereNamesTheFieldOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.edit("id: $.id", "id: $.idx")
	_, errs := b.run(1, "run", "onceward.yaml")
	contains(t, errs, "set consumers[0].id (onceward.yaml:7) to where the id is")
	if n := strings.Count(errs, "never seen a message with an id"); n != 1 || strings.Contains(errs, "Config.") {
		t.Errorf("said %d times:\n%s", n, errs)
	}
}

func TestReadOnlyDatabaseEndsTheRun(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.ledger(0)
	b.exec("PRAGMA journal_mode = DELETE")
	b.write("payments.ndjson", pay("2", "a", 1))
	if os.Geteuid() == 0 { // permissions do not stop root
		mountTmpfs(b, "ro", func(dir string) {
			copyFile(b, filepath.Join(b.dir, "payments.db"), filepath.Join(dir, "payments.db"))
		})
		b.edit("sqlite:payments.db", "sqlite:ro/payments.db")
	} else if err := os.Chmod(filepath.Join(b.dir, "payments.db"), 0o400); err != nil {
		t.Fatal(err)
	}
	out, errs := b.run(1, "run", "onceward.yaml", "--give-up-after", "2s")
	contains(t, strings.ToLower(errs), "read")
	if strings.Contains(out, `"processed":1`) {
		t.Error("something was applied")
	}
}

func TestFullDiskPausesAndThenEndsTheRun(t *testing.T) {
	t.Parallel()
	b := newBox(t, strings.Repeat("x", 1))
	mountTmpfs(b, "small", nil)
	var text strings.Builder
	for i := range 3000 {
		text.WriteString(`{"id":"` + strings.Repeat("i", 200) + string(rune('a'+i%26)) + strings.Repeat("j", i%1000) + `","v":"` + strings.Repeat("v", 2000) + "\"}\n")
	}
	b.write("payments.ndjson", text.String())
	b.write("schema.sql", "CREATE TABLE IF NOT EXISTS vs (v TEXT)")
	b.edit("sqlite:payments.db", "sqlite:small/payments.db",
		"UPDATE accounts SET cents = cents - :cents WHERE id = :account", "INSERT INTO vs VALUES (:v)", "cents: $.cents", "v: $.v", "        account: $.account\n", "")
	out, errs := b.run(1, "run", "onceward.yaml", "--json", "--give-up-after", "2s")
	contains(t, errs, "could not go on for 2s", "full")
	s := parseSummaries(t, out)
	if len(s) != 1 || s[0].Dead != 0 || s[0].Waiting != 0 {
		t.Errorf("a full disk is no message's fault: %+v", s)
	}
}

// mountTmpfs mounts a file system of 1 MB in the box; with fill, it is made read-only after that.
func mountTmpfs(b *box, name string, fill func(dir string)) {
	b.Helper()
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		why := "a file system can't be mounted here, which needs root: " + err.Error()
		if os.Getenv("CI") == "true" {
			b.Fatal(why)
		}
		b.Skip("SKIPPED: " + why)
	}
	b.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			b.Error(err)
		}
	})
	if fill == nil {
		return
	}
	fill(dir)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		b.Fatal(err)
	}
}

func copyFile(b *box, from, to string) {
	b.Helper()
	if out, err := exec.CommandContext(b.Context(), "cp", from, to).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}
