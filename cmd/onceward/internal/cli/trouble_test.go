package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDatabaseOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBox(t, pay("1", "a", 1))
	b.ledger(0)
	b.exec("UPDATE onceward_schema SET version = 99")
	_, errs := b.run(1, "run", "onceward.yaml")
	contains(t, errs, "99")
	_, errs = b.run(1, "dead", "list", "onceward.yaml")
	contains(t, errs, "version 99", "use a newer program")
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
