package sqlstore

import "context"

func (*sqlite) claim(ctx context.Context, c *claim, part []int) ([]int, error) {
	own, plain := c.s.sql.own, c.plain(part)
	stmt, args := own["Claim"], []any{c.num, c.table(part, plain), c.consumer}
	if !plain {
		stmt, args = own["ClaimRows"], append(args, c.consumer)
	}
	if len(part) == 1 {
		n, err := c.s.execOften(ctx, c.tx, stmt, args...)
		if err == nil && n == 0 {
			return part, nil
		}
		return nil, err
	}
	return c.insertMany(ctx, part, stmt, args)
}

// insertMany counts first, which is twice as fast as having the ids returned. Only if the count is
// short it takes the insert back, and repeats it to learn which are fresh.
func (c *claim) insertMany(ctx context.Context, part []int, stmt string, args []any) ([]int, error) {
	own := c.s.sql.own
	if _, err := c.s.execOften(ctx, c.tx, own["Savepoint"]); err != nil {
		return nil, err
	}
	n, err := c.execMany(ctx, len(part), stmt, args)
	if err != nil {
		return nil, err
	}
	if n == len(part) {
		_, err = c.s.execOften(ctx, c.tx, own["Release"])
		return nil, err
	}
	for _, undo := range []string{own["RollbackTo"], own["Release"]} {
		if _, err = c.tx.ExecContext(ctx, undo); err != nil {
			return nil, err
		}
	}
	fresh := make(map[string]bool, n)
	err = c.s.each(ctx, c.tx, func(scan func(...any) error) error {
		var id []byte
		err := scan(&id)
		fresh[string(id)] = true
		return err
	}, stmt+" "+own["ReturningID"], args...)
	return c.without(part, fresh), err
}

// execMany prepares the sizes that come often: small ones, and those of full batches.
func (c *claim) execMany(ctx context.Context, n int, stmt string, args []any) (int, error) {
	if n <= 16 || n%64 == 0 || n == chunk {
		return c.s.execOften(ctx, c.tx, stmt, args...)
	}
	return c.s.exec(ctx, c.tx, stmt, args...)
}
