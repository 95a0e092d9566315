package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/onceward/onceward"
	"github.com/onceward/onceward/sqlstore"
)

// cutter is a proxy before a server. When it is armed it cuts the next connection that sends a COMMIT,
// before it is forwarded or when the server has answered.
type cutter struct {
	t      *testing.T
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	armed string // "", "before" or "after"
	conns map[net.Conn]bool
}

func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, l: l, target: target, conns: map[net.Conn]bool{}}
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.mu.Lock()
		for conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) arm(when string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = when
}

// due takes the order to cut, if there is one.
func (c *cutter) due() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	when := c.armed
	c.armed = ""
	return when
}

func (c *cutter) accept() {
	for {
		client, err := c.l.Accept()
		if err != nil {
			return
		}
		srv, err := new(net.Dialer).DialContext(c.t.Context(), "tcp", c.target)
		if err != nil {
			c.t.Errorf("the server: %v", err)
			return
		}
		c.mu.Lock()
		c.conns[client], c.conns[srv] = true, true
		c.mu.Unlock()
		var cut sync.Once
		answers := make(chan bool, 1) // true: the next answer is not to reach the client
		c.wg.Go(func() { c.toServer(client, srv, &cut, answers) })
		c.wg.Go(func() { c.toClient(client, srv, &cut, answers) })
	}
}

func closeBoth(a, b net.Conn) func() {
	return func() {
		_ = a.Close()
		_ = b.Close()
	}
}

func (c *cutter) toServer(client, srv net.Conn, cut *sync.Once, answers chan<- bool) {
	defer cut.Do(closeBoth(client, srv))
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(bytes.ToUpper(buf[:n]), []byte("COMMIT")) {
			switch c.due() {
			case "before":
				return
			case "after":
				answers <- true
			}
		}
		if _, err := srv.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cutter) toClient(client, srv net.Conn, cut *sync.Once, answers <-chan bool) {
	defer cut.Do(closeBoth(client, srv))
	buf := make([]byte, 64<<10)
	for {
		n, err := srv.Read(buf)
		select {
		case <-answers:
			return
		default:
		}
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.t.Logf("the server's connection: %v", err)
			}
			return
		}
	}
}

func (s *server) address(t *testing.T) string {
	t.Helper()
	dsn := s.dsn(t, nil)
	if s.isPostgres() {
		_, rest, _ := strings.Cut(dsn, "@")
		host, _, _ := strings.Cut(rest, "/")
		return host
	}
	_, rest, _ := strings.Cut(dsn, "tcp(")
	host, _, _ := strings.Cut(rest, ")")
	return host
}

// A COMMIT without an answer is in doubt, whether or not it happened; claiming again finds out.
func TestServerCommitInDoubt(t *testing.T) {
	t.Parallel()
	const times = 30
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		c := newCutter(t, s.address(t))
		p.store = p.another(t, s.database(t, map[string]string{"host": c.l.Addr().String()}))
		want := map[string]int{}
		for i := range 2 * times {
			id, when := fmt.Sprint(i), []string{"before", "after"}[i%2]
			want[id] = 1
			err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				err := p.claims(id)(ctx, tx)
				c.arm(when)
				return err
			})
			if !errors.Is(err, onceward.ErrInDoubt) {
				t.Fatalf("InTx = %v with a COMMIT cut %s it is carried out, want ErrInDoubt", err, when)
			}
			var found []onceward.Found
			err = p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				var err error
				if found, err = p.store.Claim(ctx, tx, "c", []onceward.Record{record(id)}); err == nil && found[0] == onceward.Fresh {
					err = p.effect(ctx, tx, id)
				}
				return err
			})
			if err != nil || (found[0] == onceward.Duplicate) != (when == "after") {
				t.Fatalf("cut %s COMMIT, the claim finds %v, %v", when, found, err)
			}
		}
		p.wantEffects(t, want)
	})
}

// A deferred constraint of the program's own fails for certain at COMMIT: no doubt, no outage.
func TestPostgresDeferredConstraint(t *testing.T) {
	for _, s := range []*server{pgxServer, pqServer} {
		p := s.place(t, nil)
		must(t, p.db, "ALTER TABLE "+p.prefix+"effects ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
		err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(p.effect(ctx, tx, "a"), p.effect(ctx, tx, "a"))
		})
		if err == nil || errors.Is(err, onceward.ErrInDoubt) || errors.Is(err, onceward.ErrTxEnded) || errors.Is(err, onceward.ErrUnavailable) {
			t.Errorf("InTx = %v, want a plain error: the commit has failed for certain", err)
		}
		if err := p.store.InTx(t.Context(), p.claims("a")); err != nil {
			t.Errorf("the next transaction: %v", err)
		}
	}
}

// A serialisation failure of the handler's is a conflict, also where only COMMIT tells.
func TestPostgresSerializationFailure(t *testing.T) {
	for _, s := range []*server{pgxServer, pqServer} {
		p := s.place(t, nil)
		must(t, p.db, fmt.Sprintf(`CREATE FUNCTION pg_temp.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE serialization_failure; END $$;
			CREATE CONSTRAINT TRIGGER late AFTER INSERT ON %seffects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.fails()`, p.prefix))
		for _, stmt := range []string{"SET CONSTRAINTS late IMMEDIATE", "SELECT 1"} {
			err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if err := p.effect(ctx, tx, "a"); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, stmt)
				return err
			})
			if !errors.Is(err, onceward.ErrConflict) || errors.Is(err, onceward.ErrInDoubt) || errors.Is(err, onceward.ErrTxEnded) {
				t.Errorf("%s: InTx = %v, want ErrConflict", stmt, err)
			}
		}
	}
}

// Everything but Migrate works with the rights to read and write rows only.
func TestServerRightsToRowsSuffice(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		role := strings.TrimSuffix(p.prefix, "_")
		grants := []string{"CREATE USER " + role}
		names := []string{"schema", "consumers", "inbox", "attempts", "positions", "queue", "effects"}
		if s.isPostgres() {
			names = append(names, "guard")
		} else {
			grants[0] += "@'%'"
		}
		for _, name := range names {
			grants = append(grants, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s%s TO %s", p.prefix, name, role))
		}
		must(t, p.db, grants...)
		t.Cleanup(func() {
			if s.isPostgres() {
				must(t, p.db, "DROP OWNED BY "+role)
			}
			must(t, p.db, "DROP USER "+role)
		})
		user := *p
		user.db = s.database(t, map[string]string{"user": role})
		user.store = p.another(t, user.db)
		user.exercise(t)
		if err := user.store.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate, with nothing to do: %v", err)
		}
	})
}

// exercise calls every method.
func (p *place) exercise(t *testing.T) {
	t.Helper()
	ctx, s := t.Context(), p.store
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("Ready", s.Ready(ctx))
	check("InTx", s.InTx(ctx, p.claims("a", "b")))
	check("Put", s.Put(ctx, onceward.Entry{Queue: "q", Message: onceward.Message{ID: "m"}}))
	ls, err := s.Lease(ctx, onceward.LeaseParams{Queue: "q", Max: 1, For: 1e12})
	check("Lease", err)
	_, err = s.Start(ctx, ls[0].Row)
	check("Start", err)
	_, err = s.Park(ctx, "c", []onceward.Parking{{Record: onceward.Record{ID: "m", Row: &ls[0].Row}, Dead: true}, {Record: record("n"), Message: onceward.Message{ID: "n"}}})
	check("Park", err)
	_, err = s.Replay(ctx, onceward.Filter{ID: "m"})
	check("Replay", err)
	_, err = s.Discard(ctx, onceward.Filter{ID: "m"})
	check("Discard", err)
	_, err = s.Attempt(ctx, "c", record("x"))
	check("Attempt", err)
	ps, err := s.TakeOver(ctx, "c", []onceward.Position{{Log: "l"}})
	check("TakeOver", err)
	check("Advance", s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(s.Advance(ctx, tx, "c", ps), s.Append(ctx, tx, "q", &onceward.Message{ID: "o"}))
	}))
	ls, err = s.Lease(ctx, onceward.LeaseParams{Queue: "q", Max: 1, For: 1e12, KeepOrder: true})
	check("Lease in order", err)
	check("Finish", s.Finish(ctx, onceward.Outcome{Row: ls[0].Row, Verdict: onceward.Ack}))
	_, err = s.Purge(ctx, "c", 0, 100)
	check("Purge", err)
	_, err = s.Stats(ctx)
	check("Stats", err)
	_, err = s.List(ctx, onceward.Filter{})
	check("List", err)
	_, err = s.Explain(ctx, "a")
	check("Explain", err)
	_, err = s.Forget(ctx, "c", "a")
	check("Forget", err)
}

// Ready refuses what may lose a commit, unless that is accepted; and servers that take no writes.
func TestServerSettings(t *testing.T) {
	p := pgxServer.place(t, nil)
	for name, value := range map[string]string{"synchronous_commit": "off", "default_transaction_read_only": "on"} {
		db := pgxServer.database(t, map[string]string{name: value})
		err := p.another(t, db).Ready(t.Context())
		if name == "synchronous_commit" {
			if !onceward.IsPermanent(err) || !strings.Contains(err.Error(), "synchronous_commit is off") {
				t.Errorf("Ready = %v with synchronous_commit off", err)
			}
			lossy, _ := pgxServer.open(db, &sqlstore.Config{Prefix: p.prefix, AllowLossyCommits: true})
			if err := lossy.Ready(t.Context()); err != nil {
				t.Errorf("Ready = %v, though lossy commits are allowed", err)
			}
		} else if !errors.Is(err, onceward.ErrUnavailable) || onceward.IsPermanent(err) {
			t.Errorf("Ready = %v on a server that takes no writes, want ErrUnavailable", err)
		}
	}
}

// A lax sql_mode must not cut or merge ids, nor a collation of the database fold them, nor flags of the
// driver change what a count means.
func TestMySQLLaxSettings(t *testing.T) {
	for _, settings := range []map[string]string{
		{"sql_mode": "''"}, {"sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"}, {"clientFoundRows": "true"}, {"interpolateParams": "true"},
	} {
		p := mysqlServer.place(t, settings)
		var rs []onceward.Record
		for _, id := range []string{
			"abc", "ABC", "abc ", "é", "e\u0301", "ß", "ss", "ı", "i", "a", "á", "😀", "😁", strings.Repeat("k", 253) + "a", strings.Repeat("k", 253) + "b",
			strings.Repeat("k", 64<<10), strings.Repeat("k", 64<<10) + "x", "nul\x00", "nul", "\xff", `\`, `'`,
		} {
			rs = append(rs, record(id))
		}
		for _, want := range []onceward.Found{onceward.Fresh, onceward.Duplicate} {
			err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				found, err := p.store.Claim(ctx, tx, "c", rs)
				for i, f := range found {
					if f != want {
						t.Errorf("%v: %s is %v, want %v", settings, onceward.Quote(rs[i].ID), f, want)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range []onceward.Record{{ID: strings.Repeat("k", 256), Fingerprint: 1}} {
			err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				found, err := p.store.Claim(ctx, tx, "c", []onceward.Record{r})
				t.Logf("found %v", found)
				return err
			})
			if !onceward.IsPermanent(err) {
				t.Errorf("%v: an id of %d bytes: %v, want a permanent error", settings, len(r.ID), err)
			}
		}
		p.exercise(t)
	}
}

// An error of the claim's insert is never taken for a duplicate.
func TestServerClaimHidesNoError(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s *server) {
		p := s.place(t, nil)
		must(t, p.db, "ALTER TABLE "+p.prefix+"inbox ADD CONSTRAINT "+p.prefix+"no CHECK (fp <> 7)")
		err := p.store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			found, err := p.store.Claim(ctx, tx, "c", []onceward.Record{{ID: "a", Fingerprint: 1}, {ID: "b", Fingerprint: 7}})
			if err == nil {
				t.Errorf("Claim = %v", found)
			}
			return err
		})
		if err == nil || errors.Is(err, onceward.ErrBusy) || errors.Is(err, onceward.ErrConflict) {
			t.Errorf("InTx = %v, want the error of the constraint", err)
		}
	})
}

// The statements that run all the time use an index, also on tables without statistics.
func TestPostgresPlans(t *testing.T) {
	p := pgxServer.place(t, nil)
	must(t, p.db, "VACUUM ANALYZE "+p.prefix+"queue")
	due := "SELECT q.seq FROM {p}queue q WHERE q.queue = 'q' AND q.consumer = '' AND q.state < 3 AND "
	for stmt, want := range map[string]string{
		due + "q.due = 0 ORDER BY q.seq LIMIT 5 FOR UPDATE OF q SKIP LOCKED":                                                                                                     "Index Scan using {p}queue_due",
		due + "q.due > 0 AND q.due <= 9 ORDER BY q.due LIMIT 5 FOR UPDATE OF q SKIP LOCKED":                                                                                      "Index Scan using {p}queue_due",
		"DELETE FROM {p}inbox WHERE ctid = ANY (ARRAY(SELECT i.ctid FROM {p}inbox i WHERE i.ctid >= '(0,0)' AND i.ctid < '(64,0)' AND i.consumer + 0 = 1 AND i.at < 5 LIMIT 9))": "Tid Range Scan on {p}inbox",
		"DELETE FROM {p}queue WHERE seq = ANY ('{1,2}')":                                                                                                                         "Index Scan using {p}queue_pkey",
	} {
		stmt, want = strings.ReplaceAll(stmt, "{p}", p.prefix), strings.ReplaceAll(want, "{p}", p.prefix)
		tx, err := p.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.ExecContext(t.Context(), "SET LOCAL enable_seqscan = off")
		plan := explain(t, tx, stmt)
		if err != nil || !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s: %v, want %s, the plan is\n%s", stmt, err, want, plan)
		}
		_ = tx.Rollback()
	}
}

func TestMySQLPlans(t *testing.T) {
	p := mysqlServer.place(t, nil)
	ctx := t.Context()
	for range 30 { // an empty table has no plan
		if err := p.store.Put(ctx, onceward.Entry{Queue: "q", Message: onceward.Message{ID: fmt.Sprint(len(p.prefix), ctx)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.store.InTx(ctx, p.claims("a", "b", "d")); err != nil {
		t.Fatal(err)
	}
	due := "SELECT q.seq FROM {p}queue q WHERE q.queue = 'q' AND q.consumer = '' AND q.live = 1 AND "
	for stmt, want := range map[string]string{
		due + "q.due = 0 ORDER BY q.seq LIMIT 5 FOR UPDATE SKIP LOCKED":                                     "due",
		due + "q.due > 0 AND q.due <= 9 ORDER BY q.due LIMIT 5 FOR UPDATE SKIP LOCKED":                      "due",
		"DELETE FROM {p}inbox WHERE consumer = 1 AND id > 'a' AND id <= 'b' AND at < 5 ORDER BY id LIMIT 5": "PRIMARY",
	} {
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		plan := explain(t, tx, strings.ReplaceAll(stmt, "{p}", p.prefix))
		if !strings.Contains(plan, want) || strings.Contains(plan, "filesort") {
			t.Errorf("%s: want %s, the plan is\n%s", stmt, want, plan)
		}
		_ = tx.Rollback()
	}
}

func explain(t *testing.T, tx *sql.Tx, stmt string) string {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), "EXPLAIN "+stmt)
	if err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
	defer rows.Close()
	names, _ := rows.Columns()
	var b strings.Builder
	for rows.Next() {
		values, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			b.WriteString(v.String + " ")
		}
		b.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
