package sqlstore

import (
	"context"
	"database/sql"
	"reflect"
	"sync/atomic"

	"github.com/onceward/onceward"
)

// hooks refuse commits that are not ours on one connection, by SQLite's commit and rollback hooks.
// With its transaction ended, a connection is in autocommit mode, in which every statement is a
// commit of its own: these are refused too.
type hooks struct {
	conn  *sql.Conn
	armed atomic.Bool
	ended atomic.Bool // the transaction ended while it was armed
}

func (*sqlite) watch(conn *sql.Conn) watch {
	found := false
	_ = conn.Raw(func(dc any) error {
		_, _, found = hookMethods(dc)
		return nil
	})
	if !found {
		return savepoint{}
	}
	return &hooks{conn: conn}
}

func (*hooks) guards() bool { return true }

func (*hooks) before(context.Context) error { return nil }

func (g *hooks) begun(context.Context, *sql.Tx) error {
	g.armed.Store(true)
	return g.conn.Raw(func(dc any) error {
		setHooks(dc, g.refuses, g.rolledBack)
		return nil
	})
}

func (g *hooks) over(_ context.Context, _ *sql.Tx, commit bool) error {
	if g.ended.Load() {
		return onceward.ErrTxEnded
	}
	if commit {
		g.armed.Store(false)
	}
	return nil
}

// after makes the hooks do nothing from here on even if the driver keeps them.
func (g *hooks) after(bool) error {
	g.armed.Store(false)
	return g.conn.Raw(func(dc any) error {
		setHooks(dc, nil, nil)
		return nil
	})
}

func (g *hooks) refuses() bool { return g.armed.Load() }

func (g *hooks) rolledBack() {
	if g.armed.Load() {
		g.ended.Store(true)
	}
}

// hookMethods finds RegisterCommitHook(func() int or int32) and RegisterRollbackHook(func()), of
// whatever named types, for no driver is imported.
func hookMethods(dc any) (commit, rollback reflect.Value, ok bool) {
	v := reflect.ValueOf(dc)
	commit, rollback = v.MethodByName("RegisterCommitHook"), v.MethodByName("RegisterRollbackHook")
	c, okC := hookType(commit)
	r, okR := hookType(rollback)
	ok = okC && okR && c.NumOut() == 1 && r.NumOut() == 0 &&
		(c.Out(0).Kind() == reflect.Int || c.Out(0).Kind() == reflect.Int32)
	return commit, rollback, ok
}

func hookType(method reflect.Value) (reflect.Type, bool) {
	if !method.IsValid() || method.Type().NumIn() != 1 || method.Type().NumOut() != 0 {
		return nil, false
	}
	t := method.Type().In(0)
	return t, t.Kind() == reflect.Func && t.NumIn() == 0
}

// setHooks registers hooks with a driver's connection, or removes them if they are nil.
func setHooks(dc any, refuses func() bool, rolledBack func()) {
	commit, rollback, ok := hookMethods(dc)
	if !ok {
		return
	}
	c, r := commit.Type().In(0), rollback.Type().In(0)
	if refuses == nil {
		commit.Call([]reflect.Value{reflect.Zero(c)})
		rollback.Call([]reflect.Value{reflect.Zero(r)})
		return
	}
	var hook any = func() int { return asInt(refuses()) }
	if c.Out(0).Kind() == reflect.Int32 {
		hook = func() int32 { return int32(asInt(refuses())) } //nolint:gosec // 0 or 1
	}
	rollback.Call([]reflect.Value{reflect.ValueOf(rolledBack).Convert(r)})
	commit.Call([]reflect.Value{reflect.ValueOf(hook).Convert(c)})
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
