-- Every statement of the store, in SQLite's dialect. {p} is the table prefix, {now} the database's
-- clock in Unix milliseconds, {retries} the name of the queue Retries. {rows} and {list} become as
-- many placeholders as there are rows or values. Names and ids are bound as BLOB, always.
--
-- Nothing locks a row, for a transaction holds the writer lock from its beginning.

-- name: WriterLock
-- Takes the writer lock and changes nothing.
UPDATE {p}schema SET version = version WHERE 0

-- name: HasSchema
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '{p}schema'

-- name: Version
SELECT coalesce(max(version), 0) FROM {p}schema

-- name: Beat
UPDATE {p}schema SET beat = {now} WHERE version = (SELECT max(version) FROM {p}schema)

-- name: Consumer
SELECT num FROM {p}consumers WHERE name = ?

-- name: AddConsumer
INSERT INTO {p}consumers (name) VALUES (?) ON CONFLICT DO NOTHING

-- name: Claim
-- Rows of (id, fp).
INSERT INTO {p}inbox (consumer, id, fp, at)
SELECT ?, v.column1, v.column2, (SELECT {now})
FROM (VALUES {rows (?,?)}) AS v
WHERE NOT EXISTS (
	SELECT 1 FROM {p}queue q
	WHERE q.queue = {retries} AND q.consumer = ? AND q.id = v.column1
		AND (v.column2 = 0 OR q.fp = 0 OR q.fp = v.column2))
ON CONFLICT DO NOTHING

-- name: ClaimRows
-- Rows of (id, fp, seq, fence, order key); seq is 0 where there is no row.
INSERT INTO {p}inbox (consumer, id, fp, at)
SELECT ?, v.column1, v.column2, (SELECT {now})
FROM (VALUES {rows (?,?,?,?,?)}) AS v
WHERE NOT EXISTS (
	SELECT 1 FROM {p}queue q
	WHERE q.queue = {retries} AND q.consumer = ? AND q.id = v.column1
		AND (v.column2 = 0 OR q.fp = 0 OR q.fp = v.column2) AND q.seq <> v.column3)
AND (v.column3 = 0 OR EXISTS (
	SELECT 1 FROM {p}queue q WHERE q.seq = v.column3 AND q.fence = v.column4 AND q.state = 2))
AND (v.column5 = x'' OR NOT EXISTS (
	SELECT 1 FROM {p}queue q
	WHERE q.queue = {retries} AND q.consumer = ? AND q.order_key = v.column5 AND q.order_key <> x''
		AND q.state < 3 AND (v.column3 = 0 OR q.seq < v.column3)))
ON CONFLICT DO NOTHING

-- name: ReturningID
RETURNING id

-- name: Savepoint
SAVEPOINT {p}claim

-- name: RollbackTo
ROLLBACK TO {p}claim

-- name: Release
RELEASE {p}claim

-- name: Finished
SELECT id, fp FROM {p}inbox WHERE consumer = ? AND id IN ({list})

-- name: ParkedRows
SELECT id, seq, fp FROM {p}queue WHERE queue = {retries} AND consumer = ? AND id IN ({list})

-- name: HeldKeys
SELECT order_key, min(seq) FROM {p}queue
WHERE queue = {retries} AND consumer = ? AND state < 3 AND order_key <> x'' AND order_key IN ({list})
GROUP BY order_key

-- name: Fences
SELECT seq, fence FROM {p}queue WHERE state = 2 AND seq IN ({list})

-- name: DeleteRows
DELETE FROM {p}queue WHERE seq IN ({list})

-- name: DeleteCounts
DELETE FROM {p}attempts WHERE consumer = ? AND id IN ({list})

-- name: Forget
DELETE FROM {p}inbox WHERE consumer = ? AND id IN ({list})

-- name: Known
SELECT EXISTS (SELECT 1 FROM {p}inbox WHERE consumer = ?)

-- name: CountAttempt
INSERT INTO {p}attempts (consumer, id, n, at) VALUES (?, ?, 1, {now})
ON CONFLICT (consumer, id) DO UPDATE SET n = n + 1, at = excluded.at

-- name: Attempts
SELECT n FROM {p}attempts WHERE consumer = ? AND id = ?

-- name: CountRowAttempt
UPDATE {p}queue SET attempts = attempts + 1 WHERE seq = ? AND fence = ? AND state = 2

-- name: RowAttempts
SELECT attempts FROM {p}queue WHERE seq = ?

-- name: ParkRow
UPDATE {p}queue SET queue = {retries}, consumer = ?, id = ?, fp = ?, order_key = ?, state = ?,
	due = CASE WHEN ? > 0 THEN {now} + ? ELSE 0 END, attempts = ?, reason = ?, origin = ?, fence = fence + 1
WHERE seq = ? AND fence = ? AND state = 2

-- name: Put
INSERT INTO {p}queue (queue, consumer, id, fp, order_key, state, due, attempts, reason, origin,
	msg_id, msg_key, topic, headers, produced_at, body, created_at)
SELECT ?, ?, ?, ?, ?, ?, CASE WHEN ? > 0 THEN {now} + ? ELSE 0 END, ?, ?, ?,
	?, ?, ?, ?, coalesce(?, {now} * 1000), ?, {now}
WHERE 1
ON CONFLICT DO NOTHING

-- name: Due
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due = 0
ORDER BY q.seq LIMIT ?

-- name: DueInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due = 0 AND (q.order_key = x'' OR NOT EXISTS (
	SELECT 1 FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> x''
		AND e.state < 3 AND e.seq < q.seq))
ORDER BY q.seq LIMIT ?

-- name: DueLater
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due > 0 AND q.due <= {now}
ORDER BY q.due LIMIT ?

-- name: DueLaterInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due > 0 AND q.due <= {now} AND (q.order_key = x'' OR NOT EXISTS (
	SELECT 1 FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> x''
		AND e.state < 3 AND e.seq < q.seq))
ORDER BY q.due LIMIT ?

-- name: SkipLocked

-- name: Take
UPDATE {p}queue SET state = 2, due = {now} + ?, fence = fence + 1, leases = leases + 1
WHERE seq IN ({list})

-- name: Columns
-- The columns of a row, as scanRow reads them.
seq, fence, queue, consumer, id, msg_id, msg_key, topic, headers, produced_at, body,
CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END, attempts, leases,
CASE WHEN due = 0 THEN 0 ELSE due - {now} END, reason, origin, {now} - created_at

-- name: SeqIn
seq IN ({list})

-- name: Lock
-- Leased rows, locked in order of seq.
SELECT seq, fence, queue, order_key <> x'' FROM {p}queue WHERE state = 2 AND seq IN ({list})

-- name: FinishAck
DELETE FROM {p}queue WHERE seq = ? AND fence = ? AND state = 2

-- name: FinishRequeue
UPDATE {p}queue SET state = 1, due = CASE WHEN ? > 0 THEN {now} + ? ELSE 0 END, fence = fence + 1,
	reason = coalesce(?, reason)
WHERE seq = ? AND fence = ? AND state = 2

-- name: FinishReject
UPDATE {p}queue SET state = 3, due = 0, fence = fence + 1, reason = ?
WHERE seq = ? AND fence = ? AND state = 2

-- name: TakeOver
INSERT INTO {p}positions (consumer, log, part, next, epoch) VALUES (?, ?, ?, 0, 1)
ON CONFLICT (consumer, log, part) DO UPDATE SET epoch = epoch + 1

-- name: Position
SELECT next, epoch FROM {p}positions WHERE consumer = ? AND log = ? AND part = ?

-- name: Advance
UPDATE {p}positions SET next = ? WHERE consumer = ? AND log = ? AND part = ? AND epoch = ?

-- name: Stats
SELECT queue, consumer,
	sum(state = 1 OR state = 2 AND due <= {now}), sum(state = 2 AND due > {now}), sum(state = 3),
	coalesce(max(CASE WHEN state < 3 THEN {now} - created_at END), 0)
FROM {p}queue GROUP BY queue, consumer ORDER BY queue, consumer

-- name: Rows
FROM {p}queue WHERE

-- name: ReasonHas
instr(reason, ?) > 0

-- name: InState
CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END = ?

-- name: Replay
UPDATE {p}queue SET state = 1, due = 0, attempts = 0, fence = fence + 1 WHERE state = 3 AND seq IN ({list})

-- name: FindDead
SELECT seq, queue, consumer, id, fp FROM {p}queue WHERE state = 3 AND

-- name: ForUpdate

-- name: Record
INSERT INTO {p}inbox (consumer, id, fp, at) SELECT num, ?, ?, {now} FROM {p}consumers WHERE name = ?
ON CONFLICT DO UPDATE SET fp = 0 WHERE fp <> excluded.fp

-- name: FinishedFrom
SELECT c.name, i.id, i.at FROM {p}consumers c CROSS JOIN {p}inbox i
WHERE i.consumer = c.num AND i.id >= ? AND i.id < ?

-- name: WaitingFrom
SELECT queue, consumer, id, msg_id, CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END, created_at, reason
FROM {p}queue WHERE id = ? OR msg_id = ? OR msg_id >= ? AND msg_id < ?

-- name: PurgeLook
SELECT max(id), count(*), coalesce(sum(at < {now} - ?), 0)
FROM (SELECT id, at FROM {p}inbox WHERE consumer = ? AND id > ? ORDER BY id LIMIT ?)

-- name: PurgeLook
SELECT max(id), count(*), coalesce(sum(at < {now} - ?), 0)
FROM (SELECT id, at FROM {p}inbox WHERE consumer = ? AND id > ? ORDER BY id LIMIT ?)

-- name: Purge
DELETE FROM {p}inbox WHERE (consumer, id) IN (
	SELECT i.consumer, i.id FROM {p}inbox i
	WHERE i.consumer = ? AND i.id > ? AND i.id <= ? AND i.at < {now} - ? AND NOT EXISTS (
		SELECT 1 FROM {p}queue q WHERE q.queue = {retries} AND q.consumer = ? AND q.id = i.id)
	ORDER BY i.id LIMIT ?)

-- name: PurgeCounts
DELETE FROM {p}attempts WHERE (consumer, id) IN (
	SELECT consumer, id FROM {p}attempts WHERE consumer = ? AND at < {now} - ? LIMIT ?)
