package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward"
)

// row is a row to write.
type row struct {
	queue    string
	consumer []byte
	id       string // stored form
	fp       int64
	orderKey string
	state    onceward.EntryState
	after    int64 // ms
	attempts int
	reason   string
	origin   string
	msg      *onceward.Message
}

func (s *Store) write(ctx context.Context, tx *sql.Tx, r *row) error {
	if len(r.queue) > maxName || len(r.consumer) > maxName || len(r.id) > maxName {
		return onceward.Permanent(fmt.Errorf("onceward: the name of a queue or a consumer has more than %d bytes", maxName))
	}
	headers, err := encodeHeaders(r.msg.Headers)
	if err != nil {
		return err
	}
	var produced any
	if !r.msg.Time.IsZero() {
		produced = r.msg.Time.UnixMicro()
	}
	_, err = s.execOften(ctx, tx, s.sql.Put, []byte(r.queue), blob(r.consumer), []byte(r.id), r.fp, anyLength(r.orderKey),
		int64(r.state), r.after, r.after, r.attempts, clean(r.reason), clean(r.origin),
		[]byte(r.msg.ID), []byte(r.msg.Key), []byte(r.msg.Topic), headers, produced, blob(r.msg.Body))
	return err
}

// maxName is the length in bytes up to which stored ids and names fit into every database.
const maxName = 255

// anyLength is the stored form of a key that may be longer than an index takes. An empty key stays
// empty, for it means that there is none.
func anyLength(key string) []byte { return []byte(onceward.StoredID(key)) }

// blob is never nil, which would be NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// clean makes what people read valid as text in every database.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// encodeHeaders writes a JSON object of lists. Where a name or value is not valid UTF-8, which JSON
// can't hold, it writes '~' and the same object with every name and value in base64.
func encodeHeaders(h onceward.Headers) ([]byte, error) {
	if len(h) == 0 {
		return []byte{}, nil
	}
	for name, values := range h {
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(values, "")) || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			b, err := json.Marshal(mapHeaders(h, func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }))
			return append([]byte{'~'}, b...), err
		}
	}
	return json.Marshal(h)
}

func decodeHeaders(b []byte) (h onceward.Headers, err error) {
	if len(b) == 0 {
		return nil, nil //nolint:nilnil // no headers are no error
	}
	if b[0] != '~' {
		err = json.Unmarshal(b, &h)
		return h, err
	}
	if err = json.Unmarshal(b[1:], &h); err != nil {
		return nil, err
	}
	return mapHeaders(h, func(s string) string {
		d, bad := base64.StdEncoding.DecodeString(s)
		err = errors.Join(err, bad)
		return string(d)
	}), err
}

func mapHeaders(h onceward.Headers, f func(string) string) onceward.Headers {
	out := make(onceward.Headers, len(h))
	for name, values := range h {
		vs := make([]string, len(values))
		for i, v := range values {
			vs[i] = f(v)
		}
		out[f(name)] = vs
	}
	return out
}

// Append puts messages into a queue. See [onceward.Appender]. Consumers in this process are woken
// after the commit of a transaction of InTx; for a transaction that the program has begun itself
// they poll.
func (s *Store) Append(ctx context.Context, tx *sql.Tx, queue string, msgs ...*onceward.Message) error {
	if err := onceward.CheckAppend(queue, msgs...); err != nil {
		return err
	}
	for _, m := range msgs {
		r := row{queue: queue, id: onceward.StoredID(m.ID), orderKey: m.Key, state: onceward.Waiting, msg: m}
		if err := s.write(ctx, tx, &r); err != nil {
			return s.failStatement(ctx, err)
		}
	}
	s.appended(tx, queue)
	return nil
}

// Put writes entries. See [onceward.Queue]. An entry of a consumer is left alone only if the one that
// waits has the same body too, for else a message would be lost.
func (s *Store) Put(ctx context.Context, es ...onceward.Entry) error {
	rs := make([]row, len(es))
	for i := range es {
		e := &es[i]
		rs[i] = row{
			queue: e.Queue, consumer: []byte(e.Consumer), id: onceward.StoredID(e.Message.ID), orderKey: e.Message.Key,
			state: onceward.Waiting, after: millis(e.Due), attempts: e.Attempts, reason: e.Reason, origin: e.Origin, msg: &e.Message,
		}
		if e.State == onceward.Dead {
			rs[i].state, rs[i].after = onceward.Dead, 0
		}
		if e.Consumer != "" {
			rs[i].fp = onceward.Fingerprint(e.Message.Body)
		}
		if e.Message.ID == "" {
			if e.Queue != onceward.Retries {
				return onceward.ErrNoID
			}
			rs[i].id = onceward.AnonymousID()
		}
	}
	if len(rs) == 0 {
		return nil
	}
	return s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		for i := range rs {
			if err := s.write(ctx, t.tx, &rs[i]); err != nil {
				return err
			}
			s.appended(t.tx, rs[i].queue)
		}
		return nil
	})
}

// Lease takes rows that are due. See [onceward.Queue]. Rows in the hands of another transaction are
// passed over. On SQLite it only reads where nothing is due.
func (s *Store) Lease(ctx context.Context, p onceward.LeaseParams) (ls []onceward.Leased, err error) {
	if p.Max <= 0 {
		return nil, nil
	}
	seen := s.notify.now(p.Queue)
	if s.dialect.oneWriter() {
		due, err := s.due(ctx, s.db, &p)
		if err != nil {
			return nil, s.failRead(ctx, err)
		}
		if len(due) == 0 {
			s.notify.empty(p.Queue, seen)
			return nil, nil
		}
	}
	err = s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		due, err := s.due(ctx, t.tx, &p)
		if err == nil && len(due) > 0 {
			ls, err = s.take(ctx, t.tx, due, p.For)
		}
		return err
	})
	if err == nil && len(ls) == 0 {
		s.notify.empty(p.Queue, seen)
	}
	return ls, err
}

// due finds rows to lease: those that were never put off, and those whose time has come, for each
// has an index that ends the search early.
func (s *Store) due(ctx context.Context, q querier, p *onceward.LeaseParams) ([]any, error) {
	stmts := [...]string{s.sql.Due, s.sql.DueLater}
	if p.KeepOrder {
		stmts = [...]string{s.sql.DueInOrder, s.sql.DueLaterInOrder}
	}
	var seqs []int64
	for _, stmt := range stmts {
		err := s.each(ctx, q, func(scan func(...any) error) error {
			var seq int64
			err := scan(&seq)
			seqs = append(seqs, seq)
			return err
		}, stmt+" "+s.sql.SkipLocked, []byte(p.Queue), []byte(p.Consumer), p.Max)
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(seqs)
	var first []any
	for _, seq := range seqs[:min(len(seqs), p.Max)] {
		first = append(first, seq)
	}
	return first, nil
}

func (s *Store) take(ctx context.Context, tx *sql.Tx, seqs []any, lease time.Duration) ([]onceward.Leased, error) {
	if _, err := s.execIn(ctx, tx, s.sql.Take, seqs, millis(lease)); err != nil {
		return nil, err
	}
	var ls []onceward.Leased
	err := s.eachIn(ctx, tx, func(scan func(...any) error) error {
		l, err := scanRow(scan)
		l.Redelivered = l.leases > 1 // this lease is counted already
		l.State = onceward.InHand    // even if it was a short one
		ls = append(ls, l.Leased)
		return err
	}, "SELECT "+s.sql.Columns+" "+s.sql.Rows+" "+s.sql.SeqIn, seqs)
	slices.SortFunc(ls, func(a, b onceward.Leased) int { return cmp.Compare(a.Seq, b.Seq) })
	return ls, err
}

type scanned struct {
	onceward.Leased
	leases int
}

func scanRow(scan func(...any) error) (l scanned, err error) {
	var queue, consumer, id, msgID, key, topic, headers, body []byte
	var produced, due, age int64
	err = scan(&l.Seq, &l.Fence, &queue, &consumer, &id, &msgID, &key, &topic, &headers, &produced, &body,
		&l.State, &l.Attempts, &l.leases, &due, &l.Reason, &l.Origin, &age)
	if err != nil {
		return l, err
	}
	l.Queue, l.Consumer, l.StoredID = string(queue), string(consumer), string(id)
	l.Due, l.Age = duration(due), duration(max(age, 0))
	l.Redelivered = l.leases > 0
	l.Message = onceward.Message{ID: string(msgID), Key: string(key), Topic: string(topic), Body: body, Time: time.UnixMicro(produced).UTC()}
	if l.Message.Headers, err = decodeHeaders(headers); err != nil {
		return l, fmt.Errorf("onceward: headers of row %d: %w", l.Seq, err)
	}
	return l, nil
}

// Finish says what became of leased rows, in one transaction. See [onceward.Queue].
func (s *Store) Finish(ctx context.Context, os ...onceward.Outcome) error {
	if len(os) == 0 {
		return nil
	}
	lost := 0
	err := s.run(ctx, false, func(ctx context.Context, t *transaction) error {
		rows, err := s.lock(ctx, t.tx, os)
		if err != nil {
			return err
		}
		for i := range os {
			row, ok := rows[os[i].Seq]
			if !ok || row.fence != os[i].Fence {
				lost++
				continue
			}
			delete(rows, os[i].Seq)
			if err := s.finish(ctx, t.tx, &os[i]); err != nil {
				return err
			}
			if row.keyed || os[i].Verdict == onceward.Requeue { // it, or the next one of its key, may be leased
				s.appended(t.tx, row.queue)
			}
		}
		return nil
	})
	if err == nil && lost > 0 {
		err = fmt.Errorf("%w: %d of %d rows", onceward.ErrLeaseLost, lost, len(os))
	}
	return err
}

type leasedRow struct {
	fence int64
	queue string
	keyed bool
}

func (s *Store) lock(ctx context.Context, tx *sql.Tx, os []onceward.Outcome) (map[int64]leasedRow, error) {
	seqs := make([]any, len(os))
	for i := range os {
		seqs[i] = os[i].Seq
	}
	rows := map[int64]leasedRow{}
	err := s.eachIn(ctx, tx, func(scan func(...any) error) error {
		var seq int64
		var r leasedRow
		err := scan(&seq, &r.fence, &r.queue, &r.keyed)
		rows[seq] = r
		return err
	}, s.sql.Lock, seqs)
	return rows, err
}

func (s *Store) finish(ctx context.Context, tx *sql.Tx, o *onceward.Outcome) (err error) {
	switch reason := clean(o.Reason); o.Verdict {
	case onceward.Ack:
		_, err = s.execOften(ctx, tx, s.sql.FinishAck, o.Seq, o.Fence)
	case onceward.Requeue:
		var changed any
		if reason != "" {
			changed = reason
		}
		after := millis(o.After)
		_, err = s.execOften(ctx, tx, s.sql.FinishRequeue, after, after, changed, o.Seq, o.Fence)
	case onceward.Reject:
		_, err = s.execOften(ctx, tx, s.sql.FinishReject, reason, o.Seq, o.Fence)
	default:
		return fmt.Errorf("onceward: row %d: unknown verdict %d", o.Seq, o.Verdict)
	}
	return err
}
