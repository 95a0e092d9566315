package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/onceward/onceward"
)

// Primary result codes of SQLite: the low byte of an extended one.
const (
	codeError      = 1
	codeBusy       = 5
	codeLocked     = 6
	codeNoMem      = 7
	codeReadOnly   = 8
	codeInterrupt  = 9
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeConstraint = 19
	codeNotADB     = 26
)

type sqliteErrors struct{}

func (sqliteErrors) class(err error) (permanent bool, class error) {
	switch sqliteCode(err) {
	case codeBusy, codeLocked:
		return false, onceward.ErrConflict
	case codeIOErr, codeCorrupt, codeFull, codeCantOpen, codeProtocol, codeNotADB:
		return false, onceward.ErrUnavailable
	case codeReadOnly:
		return true, onceward.ErrUnavailable
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return false, onceward.ErrUnavailable
	}
	return false, nil
}

func (sqliteErrors) commitClass(err error) error {
	switch sqliteCode(err) {
	case codeBusy, codeLocked:
		return onceward.ErrConflict
	case codeConstraint: // a deferred foreign key
		return nil
	}
	return onceward.ErrInDoubt
}

func (sqliteErrors) endsTx(err error) bool {
	switch sqliteCode(err) {
	case codeFull, codeIOErr, codeNoMem, codeBusy, codeInterrupt, codeCorrupt:
		return true
	}
	// Drivers report an interrupted statement by the context that interrupted it.
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (sqliteErrors) timedOut(error) bool { return false }

func (sqliteErrors) lost(error) bool { return false }

// sqliteCode is the primary result code of an error of a driver for SQLite, and 0 of any other.
// Drivers differ in how they carry it: a method or a field, named Code or ExtendedCode.
func sqliteCode(err error) int {
	switch u := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return 0
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if c := sqliteCode(e); c != 0 {
				return c
			}
		}
		return 0
	}
	if c := ownCode(err); c != 0 {
		return c
	}
	return sqliteCode(errors.Unwrap(err))
}

func ownCode(err error) int {
	v := reflect.ValueOf(err)
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !strings.Contains(t.PkgPath(), "sqlite") {
		return 0 // a handler's error may have a code of its own
	}
	for _, name := range []string{"ExtendedCode", "Code"} {
		if m := v.MethodByName(name); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			if c := asCode(m.Call(nil)[0]); c != 0 {
				return c
			}
		}
		if s := reflect.Indirect(v); s.Kind() == reflect.Struct {
			if c := asCode(s.FieldByName(name)); c != 0 {
				return c
			}
		}
	}
	return 0
}

func asCode(v reflect.Value) int {
	switch {
	case !v.IsValid():
		return 0
	case v.CanInt():
		return int(v.Int() & 0xff)
	case v.CanUint():
		return int(v.Uint() & 0xff)
	}
	return 0
}
