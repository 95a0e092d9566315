package sqlstore

import (
	"errors"
	"reflect"
	"strings"

	"github.com/onceward/onceward"
)

// Error numbers of MySQL and MariaDB.
const (
	numberLockTime  = 1205
	numberDeadlock  = 1213
	numberChanged   = 1020 // MariaDB: the record has changed since the snapshot
	numberDuplicate = 1062
)

type mysqlErrors struct{}

func (e mysqlErrors) class(err error) (bool, error) { //nolint:unparam // of other databases some are permanent
	switch mysqlNumber(err) {
	case numberLockTime, numberDeadlock, numberChanged, 3101: // 3101: group replication
		return false, onceward.ErrConflict
	}
	if e.outage(err) {
		return false, onceward.ErrUnavailable
	}
	return false, goneClass(err)
}

// outage reports whether a server that answers with err can't work, at least not now.
func (mysqlErrors) outage(err error) bool {
	switch mysqlNumber(err) {
	case 1021, 1114, 1040, 1041, 1203, // disk or table full, too many connections, memory
		1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, // shutdown, killed or cut connection
		1290, 1792, 1836: // read-only
		return true
	}
	return false
}

func (mysqlErrors) commitClass(err error) error {
	switch mysqlNumber(err) {
	case numberLockTime, numberDeadlock, 3100, 3101:
		return onceward.ErrConflict
	}
	return onceward.ErrInDoubt
}

// endsTx: a deadlock's victim is rolled back as a whole; so is a statement's time-out on servers with
// innodb_rollback_on_timeout.
func (mysqlErrors) endsTx(err error) bool {
	n := mysqlNumber(err)
	return n == numberDeadlock || n == numberLockTime || n == numberChanged
}

func (mysqlErrors) timedOut(err error) bool { return mysqlNumber(err) == numberLockTime }

func (mysqlErrors) lost(err error) bool {
	if networkError(err) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "invalid connection" { // mysql.ErrInvalidConn has neither a type nor a code
			return true
		}
	}
	return false
}

// mysqlNumber is the number of an error of a driver for MySQL, and 0 of any other.
func mysqlNumber(err error) int {
	switch u := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return 0
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if n := mysqlNumber(e); n != 0 {
				return n
			}
		}
		return 0
	}
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() == reflect.Struct && strings.Contains(v.Type().PkgPath(), "mysql") {
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			return int(f.Uint()) //nolint:gosec // 16 bits
		}
	}
	return mysqlNumber(errors.Unwrap(err))
}
