package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward"
)

// Stats counts the rows of all queues. See [onceward.Inspector].
func (s *Store) Stats(ctx context.Context) ([]onceward.QueueStats, error) {
	var out []onceward.QueueStats
	err := s.each(ctx, s.db, func(scan func(...any) error) error {
		var queue, consumer []byte
		var q onceward.QueueStats
		var oldest int64
		err := scan(&queue, &consumer, &q.Waiting, &q.InHand, &q.Dead, &oldest)
		q.Queue, q.Consumer, q.Oldest = string(queue), string(consumer), duration(max(oldest, 0))
		out = append(out, q)
		return err
	}, s.sql.Stats)
	return out, s.failRead(ctx, err)
}

// conditions are the SQL of a filter, and its order and limit.
func (s *Store) conditions(f *onceward.Filter, limit int) (string, []any) {
	conds, args := []string{"seq > ?"}, []any{f.After}
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	if f.Queue != "" {
		add("queue = ?", []byte(f.Queue))
	}
	if f.Consumer != "" {
		add("consumer = ?", []byte(f.Consumer))
	}
	if f.ID != "" {
		add("(id = ? OR msg_id = ?)", []byte(onceward.StoredID(f.ID)), []byte(f.ID))
	}
	if f.Reason != "" {
		add(s.sql.ReasonHas, f.Reason)
	}
	if len(f.Seqs) > 0 {
		add("seq IN (" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(f.Seqs)), ","), "[]") + ")")
	}
	if f.State != 0 {
		add(s.sql.InState, int64(f.State))
	}
	sql := strings.Join(conds, " AND ") + " ORDER BY seq"
	if limit > 0 {
		sql += fmt.Sprintf(" LIMIT %d", limit)
	}
	return sql, args
}

// List returns rows. See [onceward.Inspector].
func (s *Store) List(ctx context.Context, f onceward.Filter) ([]onceward.Leased, error) {
	where, args := s.conditions(&f, cmp.Or(max(f.Limit, 0), 100))
	var out []onceward.Leased
	err := s.each(ctx, s.db, func(scan func(...any) error) error {
		l, err := scanRow(scan)
		out = append(out, l.Leased)
		return err
	}, "SELECT "+s.sql.Columns+" "+s.sql.Rows+" "+where, args...)
	return out, s.failRead(ctx, err)
}

type deadRow struct {
	seq             int64
	queue, consumer []byte
	id              []byte
	fp              int64
}

func (s *Store) findDead(ctx context.Context, tx *sql.Tx, f *onceward.Filter) (ds []deadRow, seqs []any, err error) {
	where, args := s.conditions(f, f.Limit)
	err = s.each(ctx, tx, func(scan func(...any) error) error {
		var d deadRow
		err := scan(&d.seq, &d.queue, &d.consumer, &d.id, &d.fp)
		ds, seqs = append(ds, d), append(seqs, d.seq)
		return err
	}, s.sql.FindDead+" "+where+" "+s.sql.ForUpdate, args...)
	return ds, seqs, err
}

// Replay makes dead rows wait again, in one transaction. See [onceward.Inspector].
func (s *Store) Replay(ctx context.Context, f onceward.Filter) (n int, err error) {
	if f.Empty() {
		return 0, onceward.ErrNoFilter
	}
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		ds, seqs, err := s.findDead(ctx, t.tx, &f)
		if err != nil {
			return err
		}
		for i := range ds {
			s.appended(t.tx, string(ds[i].queue))
		}
		n, err = s.execIn(ctx, t.tx, s.sql.Replay, seqs)
		return err
	})
	return n, err
}

// Discard deletes dead rows, in one transaction. See [onceward.Inspector].
func (s *Store) Discard(ctx context.Context, f onceward.Filter) (n int, err error) {
	if f.Empty() {
		return 0, onceward.ErrNoFilter
	}
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		ds, seqs, err := s.findDead(ctx, t.tx, &f)
		if err != nil {
			return err
		}
		for _, d := range ds {
			if len(d.consumer) == 0 {
				continue
			}
			if _, err := s.exec(ctx, t.tx, s.sql.AddConsumer, d.consumer); err != nil {
				return err
			}
			if _, err := s.exec(ctx, t.tx, s.sql.Record, d.id, d.fp, d.consumer); err != nil {
				return err
			}
		}
		n, err = s.execIn(ctx, t.tx, s.sql.DeleteRows, seqs)
		return err
	})
	return n, err
}

// Forget deletes inbox records. See [onceward.Inspector].
func (s *Store) Forget(ctx context.Context, consumer string, ids ...string) (n int, err error) {
	num, err := s.lookUp(ctx, consumer)
	if err != nil || num == 0 || len(ids) == 0 {
		return 0, err
	}
	stored := make([]any, len(ids))
	for i, id := range ids {
		stored[i] = []byte(onceward.StoredID(id))
	}
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		if n, err = s.execIn(ctx, t.tx, s.sql.Forget, stored, num); err != nil {
			return err
		}
		_, err = s.execIn(ctx, t.tx, s.sql.DeleteCounts, stored, []byte(consumer))
		return err
	})
	return n, err
}

// Explain tells what is known about a message and about those that consumers emitted while they
// handled it. See [onceward.Inspector]. It reads every row that waits.
func (s *Store) Explain(ctx context.Context, id string) ([]onceward.Trace, error) {
	e := explainer{id: id, stored: onceward.StoredID(id)}
	emitted, behind := id+"#", id+"$" // the ids of emitted messages begin with the first: '#'+1 is '$'
	for _, r := range [][2]string{{e.stored, e.stored + "\x00"}, {emitted, behind}} {
		if err := s.each(ctx, s.db, e.finished, s.sql.FinishedFrom, []byte(r[0]), []byte(r[1])); err != nil {
			return nil, s.failRead(ctx, err)
		}
	}
	err := s.each(ctx, s.db, e.waiting, s.sql.WaitingFrom, []byte(e.stored), []byte(id), []byte(emitted), []byte(behind))
	slices.SortStableFunc(e.traces, func(a, b onceward.Trace) int { return a.At.Compare(b.At) })
	return e.traces, s.failRead(ctx, err)
}

type explainer struct {
	id, stored string
	traces     []onceward.Trace
}

func (e *explainer) finished(scan func(...any) error) error {
	var consumer, id []byte
	var at int64
	err := scan(&consumer, &id, &at)
	tr := onceward.Trace{What: "finished", Consumer: string(consumer), ID: e.id, At: time.UnixMilli(at).UTC()}
	if string(id) != e.stored {
		tr.What, tr.ID = "emitted, finished", string(id)
	}
	e.traces = append(e.traces, tr)
	return err
}

func (e *explainer) waiting(scan func(...any) error) error {
	var queue, consumer, id, msgID []byte
	var state onceward.EntryState
	var at int64
	tr := onceward.Trace{ID: e.id}
	err := scan(&queue, &consumer, &id, &msgID, &state, &at, &tr.Reason)
	tr.What, tr.Queue, tr.Consumer, tr.At = state.String(), string(queue), string(consumer), time.UnixMilli(at).UTC()
	if string(id) != e.stored && string(msgID) != e.id {
		tr.What, tr.ID = "emitted, "+tr.What, string(msgID)
	}
	e.traces = append(e.traces, tr)
	return err
}
