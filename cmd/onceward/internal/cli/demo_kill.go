package cli

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// killer runs a worker and kills it whenever the ledger has reached the next target.
type killer struct {
	*demo
	db      *sql.DB
	args    []string
	name    string
	unique  int
	targets []int
	killed  int
}

// targets are the places, spread over the run, at which the worker is to be killed.
func targets(unique, kills int) []int {
	ts := make([]int, kills)
	for i := range ts {
		ts[i] = 1 + int((float64(i)+rand.Float64())*float64(unique-2)/float64(kills+1)) //nolint:gosec // any numbers will do
	}
	return ts
}

// drive starts the worker again and again until it ends by itself.
func (k *killer) drive(ctx context.Context) error {
	for {
		done, err := k.once(ctx)
		if done || err != nil {
			return err
		}
	}
}

// once runs the worker until it ends or is killed.
func (k *killer) once(ctx context.Context) (done bool, err error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, k.exe, k.args...) //nolint:gosec // this very program
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("the worker: %w: %s", err, out.String())
			}
			return true, err
		case <-tick.C:
			n, err := k.applied(ctx)
			if err != nil {
				return false, errors.Join(err, cmd.Process.Kill(), <-ended)
			}
			if k.killed < len(k.targets) && n >= k.targets[k.killed] {
				if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					return false, err
				}
				if err := <-ended; err == nil {
					return true, nil // it was quicker
				}
				k.killed++
				return false, nil
			}
		}
	}
}

// applied returns how many payments are in the ledger, and shows it.
func (k *killer) applied(ctx context.Context) (n int, err error) {
	err = k.db.QueryRowContext(ctx, "SELECT coalesce(max(rowid), 0) FROM ledger").Scan(&n)
	k.term.show(fmt.Sprintf("%s %s: killed %d of %d times", gauge(int64(n), int64(k.unique)), k.name, k.killed, len(k.targets)))
	return n, err
}

// payments are what a demo's file holds.
type payments struct {
	unique int
	cents  []int
}

const (
	demoAccounts = 100
	demoSchema   = `CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (id TEXT NOT NULL, account TEXT NOT NULL, cents INTEGER NOT NULL);
`
	demoConfig = `store: sqlite:demo.db
setup: schema.sql
consumers:
  - name: ledger
    source: file:payments.ndjson
    guarantee: effectively-once
    id: $.payment_id
    handler:
      sql:
        - run: UPDATE accounts SET cents = cents + :cents WHERE id = :account
          rows: 1
        - run: INSERT INTO ledger (id, account, cents) VALUES (:id, :account, :cents)
      params:
        id: $.payment_id
        account: $.account
        cents: $.cents
`
)

// writePayments writes the file of payments, one in twenty of them a repeat of an earlier one, and
// the config.
func writePayments(dir string, messages int) (*payments, error) {
	p := &payments{}
	var b strings.Builder
	for i := range messages {
		id := p.unique
		if i%20 == 19 {
			id = rand.IntN(p.unique) //nolint:gosec // any numbers will do
		} else {
			p.unique++
			p.cents = append(p.cents, 1+rand.IntN(10_000)) //nolint:gosec // any numbers will do
		}
		fmt.Fprintf(&b, "{\"payment_id\":\"payment-%d\",\"account\":\"account-%d\",\"cents\":%d}\n", id, id%demoAccounts, p.cents[id])
	}
	for name, text := range map[string]string{"payments.ndjson": b.String(), "schema.sql": demoSchema, "onceward.yaml": demoConfig} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // nothing in it is secret
			return nil, err
		}
	}
	return p, nil
}

// load creates the accounts, and what is expected of the payments.
func (p *payments) load(ctx context.Context, db *sql.DB) error {
	const tables = "PRAGMA journal_mode = WAL;\n" + demoSchema + `
CREATE TABLE seen (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE expected (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) WITHOUT ROWID;
`
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it is committed by then
	for i := range demoAccounts {
		if _, err := tx.ExecContext(ctx, "INSERT INTO accounts VALUES (?, 0)", fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO expected VALUES (?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // it goes with the transaction
	for i, cents := range p.cents {
		if _, err := insert.ExecContext(ctx, fmt.Sprintf("payment-%d", i), cents); err != nil {
			return err
		}
	}
	return tx.Commit()
}
