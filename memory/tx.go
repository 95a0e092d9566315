package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/onceward/onceward"
)

var errEnded = errors.New("memory: the transaction has ended")

// Tx is a transaction of a [Store]. Beside what the consumer does in it, a handler can use it to keep
// values, which stand for the tables of a database. Its methods are safe for concurrent use. Once it
// has ended, for whatever reason, they change nothing.
type Tx struct {
	s *Store
	owner

	// The rest is guarded by s.mu.
	why       error // why it has ended; nil: it has not
	failure   error // of a method that has no error to return
	inbox     map[msgKey]int64
	counts    []msgKey // to delete
	rows      map[int64]bool
	appended  []onceward.Entry
	positions map[posKey]position
	values    map[string]string
}

func newTx(s *Store) *Tx {
	return &Tx{
		s:         s,
		owner:     owner{ended: make(chan struct{})},
		inbox:     map[msgKey]int64{},
		rows:      map[int64]bool{},
		positions: map[posKey]position{},
		values:    map[string]string{},
	}
}

// Get returns the value of key, as this transaction has left it. It locks the key, for which it may
// wait; if it waits too long, it returns "" and the transaction fails with [onceward.ErrConflict].
func (tx *Tx) Get(key string) (value string, ok bool) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if !tx.touch(key) {
		return "", false
	}
	return tx.value(key)
}

// Put sets the value of key. It locks the key like Get.
func (tx *Tx) Put(key, value string) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.touch(key) {
		tx.values[key] = value
	}
}

// Add adds n to the value of key, where none counts as 0, and returns the sum. It locks the key like
// Get. If the value is no decimal integer, it returns 0 and the transaction fails.
func (tx *Tx) Add(key string, n int64) int64 {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if !tx.touch(key) {
		return 0
	}
	if v, ok := tx.value(key); ok {
		was, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			tx.failure = fmt.Errorf("memory: add to %s: %w", onceward.Quote(key), err)
			return 0
		}
		n += was
	}
	tx.values[key] = strconv.FormatInt(n, 10)
	return n
}

// Err says why the transaction can't be used, or can't commit, any more: it has ended, or a method
// that returns no error has failed. It is nil as long as all is well.
func (tx *Tx) Err() error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	return tx.err()
}

func (tx *Tx) err() error {
	if tx.why != nil {
		return tx.why
	}
	return tx.failure
}

// Commit is refused: the consumer commits. The transaction is rolled back, and its InTx returns
// [onceward.ErrTxEnded].
func (tx *Tx) Commit() error { return tx.refuse("commit") }

// Rollback is refused like Commit: a handler that does not want what it did returns an error.
func (tx *Tx) Rollback() error { return tx.refuse("rollback") }

func (tx *Tx) refuse(what string) error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.why != nil {
		return tx.why
	}
	tx.end(fmt.Errorf("memory: %s is the consumer's: %w", what, onceward.ErrTxEnded))
	return tx.why
}

func (tx *Tx) value(key string) (string, bool) {
	if v, ok := tx.values[key]; ok {
		return v, true
	}
	v, ok := tx.s.values[key]
	return v, ok
}

func (tx *Tx) touch(key string) bool {
	if tx.err() != nil {
		return false
	}
	if err := tx.s.lock(context.Background(), &tx.owner, lockKey{kind: lockValue, a: key}); err != nil {
		if tx.why == nil {
			tx.failure = fmt.Errorf("memory: lock %s: %w", onceward.Quote(key), err)
		}
		return false
	}
	return true
}

// use is an error if s can't use tx. The caller holds s.mu.
func (s *Store) use(tx *Tx) error {
	if tx == nil || tx.s != s {
		return errors.New("memory: the transaction is another store's")
	}
	return tx.err()
}

func (tx *Tx) rollback(why error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.why == nil {
		tx.end(why)
	}
}

func (tx *Tx) end(why error) {
	tx.why = why
	close(tx.ended)
	tx.s.unlock(&tx.owner)
}

// finish commits, or says why not.
func (tx *Tx) finish(ctx context.Context, returned error) error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.why == nil && ctx.Err() != nil {
		tx.end(fmt.Errorf("memory: rolled back, for the context has ended: %w", context.Cause(ctx)))
	}
	err := tx.err()
	switch {
	case returned != nil && err != nil && !errors.Is(returned, err):
		err = fmt.Errorf("%w (%w)", returned, err)
	case returned != nil:
		err = fmt.Errorf("memory: rolled back: %w", returned)
	}
	if err == nil {
		tx.apply()
		tx.why = errEnded
		close(tx.ended)
		tx.s.unlock(&tx.owner)
		return nil
	}
	if tx.why == nil {
		tx.end(errEnded)
	}
	return err
}

// apply makes the transaction's changes. It can't fail, because everything they depend on is locked.
func (tx *Tx) apply() {
	s := tx.s
	for k, fingerprint := range tx.inbox {
		s.record(k, fingerprint)
	}
	for _, k := range tx.counts {
		delete(s.counts, k)
	}
	for seq := range tx.rows {
		s.remove(s.bySeq[seq])
	}
	maps.Copy(s.positions, tx.positions)
	maps.Copy(s.values, tx.values)
	for i := range tx.appended {
		s.put(&tx.appended[i])
	}
}
