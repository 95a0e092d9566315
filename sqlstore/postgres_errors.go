package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/onceward/onceward"
)

// SQLSTATEs that are looked at one by one.
const (
	stateAborted   = "25P02"
	stateReadOnly  = "25006"
	stateLockTime  = "55P03"
	stateUnknown   = "40003" // statement completion unknown
	stateConflict  = "40001"
	stateDeadlock  = "40P01"
	stateCancelled = "57014"
)

type postgresErrors struct{}

func (e postgresErrors) class(err error) (bool, error) { //nolint:unparam // of other databases some are permanent
	switch state := sqlState(err); {
	case state == stateConflict, state == stateDeadlock, state == stateLockTime:
		return false, onceward.ErrConflict
	case e.outage(state), state == stateReadOnly:
		return false, onceward.ErrUnavailable
	}
	return false, goneClass(err)
}

// outage reports whether a server that answers with state can't work, at least not now.
func (postgresErrors) outage(state string) bool {
	if len(state) != 5 || state == stateCancelled {
		return false
	}
	switch state[:2] {
	case "08", "53", "57", "58", "XX": // connection, resources, operator, system, internal
		return true
	}
	return false
}

// commitClass: an error that the server has answered with means that nothing was committed, but not
// one on its way out.
func (e postgresErrors) commitClass(err error) error {
	state := sqlState(err)
	switch {
	case state == stateConflict, state == stateDeadlock:
		return onceward.ErrConflict
	case state == "", state == stateUnknown, e.outage(state):
		return onceward.ErrInDoubt
	}
	return nil
}

func (postgresErrors) endsTx(error) bool { return false }

func (postgresErrors) timedOut(err error) bool { return sqlState(err) == stateLockTime }

func (postgresErrors) lost(err error) bool { return networkError(err) }

// sqlState is the SQLSTATE of an error of a driver for Postgres, and empty for any other.
func sqlState(err error) string {
	coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if ok {
		return coded.SQLState()
	}
	return ""
}

// goneClass is ErrUnavailable for what database/sql says of a connection that is gone.
func goneClass(err error) error {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return onceward.ErrUnavailable
	}
	return nil
}

// networkError reports whether an error of a statement says that the connection is gone. It must not be
// asked about a handler's error, which may be of a connection of its own.
func networkError(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	var n net.Error
	var unsent interface{ SafeToRetry() bool } // pgx's: the connection was closed before
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || goneClass(err) != nil || errors.As(err, &n) ||
		errors.As(err, &unsent) && unsent.SafeToRetry()
}
