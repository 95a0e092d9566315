package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onceward/onceward"
)

// savepoint finds out that the transaction that began is over: its savepoint is gone then. It can't
// refuse anything.
type savepoint struct{}

const handlerSavepoint = "onceward_handler"

func (savepoint) guards() bool { return false }

func (savepoint) before(context.Context) error { return nil }

func (savepoint) begun(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "SAVEPOINT "+handlerSavepoint)
	return err
}

func (savepoint) over(ctx context.Context, tx *sql.Tx, commit bool) error {
	_, err := tx.ExecContext(ctx, endSavepoint(commit))
	if err != nil {
		return fmt.Errorf("%w: %w", onceward.ErrTxEscaped, err)
	}
	return nil
}

// endSavepoint is a statement that fails if the savepoint is gone. Going back to it is possible where
// a statement's error has aborted the transaction, too.
func endSavepoint(commit bool) string {
	if commit {
		return "RELEASE SAVEPOINT " + handlerSavepoint
	}
	return "ROLLBACK TO SAVEPOINT " + handlerSavepoint
}

func (savepoint) after(bool) error { return nil }
