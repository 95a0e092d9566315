-- Every statement of the store, in the dialect of MySQL and MariaDB. {p} is the table prefix, {now} the
-- database's clock in Unix milliseconds, {retries} the name of the queue Retries, {bounded} what goes
-- before a statement that waits for a claim. Names and ids are bound as binary strings, always.
--
-- There is no INSERT IGNORE, which turns errors into success, nor RETURNING, which MySQL does not have.

-- name: Autocommit
SET autocommit = 1

-- name: NoAutocommit
SET autocommit = 0

-- name: Claim
-- Rows of (consumer, id, fp).
{bounded} INTO {p}inbox (consumer, id, fp, at) VALUES {rows (?, ?, ?, {now})}

-- name: LockRows
{bounded-select} seq, fence FROM {p}queue WHERE state = 2 AND seq IN ({list}) ORDER BY seq FOR UPDATE

-- name: AnyParked
SELECT EXISTS (SELECT 1 FROM {p}queue WHERE queue = {retries} AND consumer = ?)

-- name: HasSchema
SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{p}schema'

-- name: Version
SELECT coalesce(max(version), 0) FROM {p}schema

-- name: Beat
UPDATE {p}schema SET beat = {now} ORDER BY version DESC LIMIT 1

-- name: Consumer
SELECT num FROM {p}consumers WHERE name = ?

-- name: AddConsumer
{bounded} INTO {p}consumers (name) VALUES (?) ON DUPLICATE KEY UPDATE name = VALUES(name)

-- name: Finished
SELECT id, fp FROM {p}inbox WHERE consumer = ? AND id IN ({list})

-- name: ParkedRows
SELECT id, seq, fp FROM {p}queue WHERE queue = {retries} AND consumer = ? AND id IN ({list})

-- name: HeldKeys
SELECT order_key, min(seq) FROM {p}queue
WHERE queue = {retries} AND consumer = ? AND live = 1 AND order_key <> '' AND order_key IN ({list})
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
ON DUPLICATE KEY UPDATE n = n + 1, at = VALUES(at)

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
VALUES (?, ?, ?, ?, ?, ?, CASE WHEN ? > 0 THEN {now} + ? ELSE 0 END, ?, ?, ?,
	?, ?, ?, ?, coalesce(?, {now} * 1000), ?, {now})
ON DUPLICATE KEY UPDATE seq = seq

-- name: Due
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.live = 1 AND q.due = 0
ORDER BY q.seq LIMIT ?

-- name: DueInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.live = 1 AND q.due = 0 AND (q.order_key = '' OR NOT EXISTS (
	SELECT 1 FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> ''
		AND e.live = 1 AND e.seq < q.seq))
ORDER BY q.seq LIMIT ?

-- name: DueLater
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.live = 1 AND q.due > 0 AND q.due <= {now}
ORDER BY q.due LIMIT ?

-- name: DueLaterInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.live = 1 AND q.due > 0 AND q.due <= {now} AND (q.order_key = '' OR NOT EXISTS (
	SELECT 1 FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> ''
		AND e.live = 1 AND e.seq < q.seq))
ORDER BY q.due LIMIT ?

-- name: SkipLocked
FOR UPDATE SKIP LOCKED

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
SELECT seq, fence, queue, order_key <> '' FROM {p}queue
WHERE state = 2 AND seq IN ({list}) ORDER BY seq FOR UPDATE

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
ON DUPLICATE KEY UPDATE epoch = epoch + 1

-- name: Position
SELECT next, epoch FROM {p}positions WHERE consumer = ? AND log = ? AND part = ?

-- name: Advance
UPDATE {p}positions SET next = ? WHERE consumer = ? AND log = ? AND part = ? AND epoch = ?

-- name: Stats
SELECT queue, consumer,
	sum(state = 1 OR state = 2 AND due <= {now}), sum(state = 2 AND due > {now}), sum(state = 3),
	coalesce({now} - min(CASE WHEN state < 3 THEN created_at END), 0)
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
FOR UPDATE

-- name: Record
INSERT INTO {p}inbox (consumer, id, fp, at) SELECT num, ?, ?, {now} FROM {p}consumers WHERE name = ?
ON DUPLICATE KEY UPDATE fp = IF({p}inbox.fp = VALUES(fp), {p}inbox.fp, 0)

-- name: FinishedFrom
SELECT c.name, i.id, i.at FROM {p}consumers c CROSS JOIN {p}inbox i
WHERE i.consumer = c.num AND i.id >= ? AND i.id < ?

-- name: WaitingFrom
SELECT queue, consumer, id, msg_id, CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END, created_at, reason
FROM {p}queue WHERE id = ? OR msg_id = ? OR msg_id >= ? AND msg_id < ?

-- name: PurgeLock
SELECT coalesce(GET_LOCK(CONCAT('onceward ', MD5(CONCAT(DATABASE(), '.{p}purge'))), 0), 0)

-- name: PurgeUnlock
DO RELEASE_LOCK(CONCAT('onceward ', MD5(CONCAT(DATABASE(), '.{p}purge'))))

-- name: PurgeLook
SELECT max(s.id), count(*), coalesce(sum(s.at < {now} - ?), 0)
FROM (SELECT id, at FROM {p}inbox WHERE consumer = ? AND id > ? ORDER BY id LIMIT ?) AS s

-- name: Purge
DELETE FROM {p}inbox WHERE consumer = ? AND id > ? AND id <= ? AND at < {now} - ? AND NOT EXISTS (
	SELECT 1 FROM {p}queue q WHERE q.queue = {retries} AND q.consumer = ? AND q.id = {p}inbox.id)
ORDER BY id LIMIT ?

-- name: PurgeCounts
DELETE FROM {p}attempts WHERE consumer = ? AND at < {now} - ? LIMIT ?
