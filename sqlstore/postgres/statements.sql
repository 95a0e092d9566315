-- Every statement of the store, in Postgres's dialect. {p} is the table prefix, {now} the database's
-- clock in Unix milliseconds, {retries} the name of the queue Retries, {patience} how long a claim waits
-- in milliseconds. Names and ids are bound as bytea, always. A list of values is bound as the text of an
-- array, which every driver can send.

-- name: OwnSettings
-- For the store's own transactions. A plan that was made while the queue was empty must not be used when
-- it is full, so an index is taken where there is one.
SET LOCAL lock_timeout = {patience}; SET LOCAL enable_seqscan = off

-- name: Guard
-- The session is read-only by default.
SET TRANSACTION READ WRITE; INSERT INTO {p}guard (nothing) VALUES (1); SAVEPOINT onceward_handler

-- name: Permit
DELETE FROM {p}guard WHERE backend = pg_backend_pid(); RESET default_transaction_read_only; RELEASE SAVEPOINT onceward_handler

-- name: Claim
SELECT {p}claim(?::integer, ?::bytea, ?::text::bytea[], ?::text::bigint[], NULL, NULL, NULL, {patience})

-- name: ClaimRows
SELECT {p}claim(?::integer, ?::bytea, ?::text::bytea[], ?::text::bigint[], ?::text::bigint[], ?::text::bigint[], ?::text::bytea[], {patience})

-- name: HasSchema
SELECT count(*) FROM pg_class WHERE oid = to_regclass('{p}schema')

-- name: Version
SELECT coalesce(max(version), 0) FROM {p}schema

-- name: Beat
UPDATE {p}schema SET beat = {now} WHERE version = (SELECT max(version) FROM {p}schema)

-- name: Consumer
SELECT num FROM {p}consumers WHERE name = ?

-- name: AddConsumer
SELECT {p}add_consumer(?::bytea, {patience})

-- name: Finished
SELECT id, fp FROM {p}inbox WHERE consumer = ? AND id = ANY (?::text::bytea[])

-- name: ParkedRows
SELECT id, seq, fp FROM {p}queue WHERE queue = {retries} AND consumer = ? AND id = ANY (?::text::bytea[])

-- name: HeldKeys
SELECT order_key, min(seq) FROM {p}queue
WHERE queue = {retries} AND consumer = ? AND state < 3 AND order_key <> '' AND order_key = ANY (?::text::bytea[])
GROUP BY order_key

-- name: Fences
SELECT seq, fence FROM {p}queue WHERE state = 2 AND seq = ANY (?::text::bigint[])

-- name: DeleteRows
DELETE FROM {p}queue WHERE seq = ANY (?::text::bigint[])

-- name: DeleteCounts
DELETE FROM {p}attempts WHERE consumer = ? AND id = ANY (?::text::bytea[])

-- name: Forget
DELETE FROM {p}inbox WHERE consumer = ? AND id = ANY (?::text::bytea[])

-- name: Known
SELECT EXISTS (SELECT FROM {p}inbox WHERE consumer = ?)

-- name: CountAttempt
INSERT INTO {p}attempts AS a (consumer, id, n, at) VALUES (?, ?, 1, {now})
ON CONFLICT (consumer, id) DO UPDATE SET n = a.n + 1, at = excluded.at

-- name: Attempts
SELECT n FROM {p}attempts WHERE consumer = ? AND id = ?

-- name: CountRowAttempt
UPDATE {p}queue SET attempts = attempts + 1 WHERE seq = ? AND fence = ? AND state = 2

-- name: RowAttempts
SELECT attempts FROM {p}queue WHERE seq = ?

-- name: ParkRow
UPDATE {p}queue SET queue = {retries}, consumer = ?, id = ?, fp = ?, order_key = ?, state = ?,
	due = CASE WHEN ?::bigint > 0 THEN {now} + ?::bigint ELSE 0 END, attempts = ?, reason = ?, origin = ?, fence = fence + 1
WHERE seq = ? AND fence = ? AND state = 2

-- name: Put
INSERT INTO {p}queue (queue, consumer, id, fp, order_key, state, due, attempts, reason, origin,
	msg_id, msg_key, topic, headers, produced_at, body, created_at)
VALUES (?, ?, ?, ?, ?, ?, CASE WHEN ?::bigint > 0 THEN {now} + ?::bigint ELSE 0 END, ?, ?, ?,
	?, ?, ?, ?, coalesce(?::bigint, {now} * 1000), ?, {now})
ON CONFLICT DO NOTHING

-- name: Due
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due = 0
ORDER BY q.seq LIMIT ?

-- name: DueInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due = 0 AND (q.order_key = '' OR NOT EXISTS (
	SELECT FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> ''
		AND e.state < 3 AND e.seq < q.seq))
ORDER BY q.seq LIMIT ?

-- name: DueLater
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due > 0 AND q.due <= (SELECT {now})
ORDER BY q.due LIMIT ?

-- name: DueLaterInOrder
SELECT q.seq FROM {p}queue q
WHERE q.queue = ? AND q.consumer = ? AND q.state < 3 AND q.due > 0 AND q.due <= (SELECT {now}) AND (q.order_key = '' OR NOT EXISTS (
	SELECT FROM {p}queue e
	WHERE e.queue = q.queue AND e.consumer = q.consumer AND e.order_key = q.order_key AND e.order_key <> ''
		AND e.state < 3 AND e.seq < q.seq))
ORDER BY q.due LIMIT ?

-- name: SkipLocked
FOR UPDATE OF q SKIP LOCKED

-- name: Take
UPDATE {p}queue SET state = 2, due = {now} + ?, fence = fence + 1, leases = leases + 1
WHERE seq = ANY (?::text::bigint[])

-- name: Columns
-- The columns of a row, as scanRow reads them.
seq, fence, queue, consumer, id, msg_id, msg_key, topic, headers, produced_at, body,
CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END, attempts, leases,
CASE WHEN due = 0 THEN 0 ELSE due - {now} END, reason, origin, {now} - created_at

-- name: SeqIn
seq = ANY (?::text::bigint[])

-- name: Lock
SELECT seq, fence, queue, order_key <> '' FROM {p}queue
WHERE state = 2 AND seq = ANY (?::text::bigint[]) ORDER BY seq FOR UPDATE

-- name: FinishAck
DELETE FROM {p}queue WHERE seq = ? AND fence = ? AND state = 2

-- name: FinishRequeue
UPDATE {p}queue SET state = 1, due = CASE WHEN ?::bigint > 0 THEN {now} + ?::bigint ELSE 0 END, fence = fence + 1,
	reason = coalesce(?::text, reason)
WHERE seq = ? AND fence = ? AND state = 2

-- name: FinishReject
UPDATE {p}queue SET state = 3, due = 0, fence = fence + 1, reason = ?
WHERE seq = ? AND fence = ? AND state = 2

-- name: TakeOver
INSERT INTO {p}positions AS p (consumer, log, part, next, epoch) VALUES (?, ?, ?, 0, 1)
ON CONFLICT (consumer, log, part) DO UPDATE SET epoch = p.epoch + 1

-- name: Position
SELECT next, epoch FROM {p}positions WHERE consumer = ? AND log = ? AND part = ?

-- name: Advance
UPDATE {p}positions SET next = ? WHERE consumer = ? AND log = ? AND part = ? AND epoch = ?

-- name: Stats
SELECT queue, consumer,
	count(*) FILTER (WHERE state = 1 OR state = 2 AND due <= {now}), count(*) FILTER (WHERE state = 2 AND due > {now}),
	count(*) FILTER (WHERE state = 3), coalesce({now} - min(created_at) FILTER (WHERE state < 3), 0)
FROM {p}queue GROUP BY queue, consumer ORDER BY queue, consumer

-- name: Rows
FROM {p}queue WHERE

-- name: ReasonHas
strpos(reason, ?) > 0

-- name: InState
CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END = ?::bigint

-- name: Replay
UPDATE {p}queue SET state = 1, due = 0, attempts = 0, fence = fence + 1 WHERE state = 3 AND seq = ANY (?::text::bigint[])

-- name: FindDead
SELECT seq, queue, consumer, id, fp FROM {p}queue WHERE state = 3 AND

-- name: ForUpdate
FOR UPDATE

-- name: Record
INSERT INTO {p}inbox AS i (consumer, id, fp, at) SELECT num, ?::bytea, ?::bigint, {now} FROM {p}consumers WHERE name = ?
ON CONFLICT (consumer, id) DO UPDATE SET fp = 0 WHERE i.fp <> excluded.fp

-- name: FinishedFrom
SELECT c.name, i.id, i.at FROM {p}consumers c CROSS JOIN {p}inbox i
WHERE i.consumer = c.num AND i.id >= ? AND i.id < ?

-- name: WaitingFrom
SELECT queue, consumer, id, msg_id, CASE WHEN state = 2 AND due <= {now} THEN 1 ELSE state END, created_at, reason
FROM {p}queue WHERE id = ? OR msg_id = ? OR msg_id >= ? AND msg_id < ?

-- name: PurgeLock
SELECT pg_try_advisory_xact_lock(hashtext(current_schema() || '.{p}purge'), 1)

-- name: PurgePages
SELECT pg_relation_size('{p}inbox') / current_setting('block_size')::bigint

-- name: Purge
-- "+ 0" keeps it from reading all of a consumer's keys instead of the pages.
DELETE FROM {p}inbox WHERE ctid = ANY (ARRAY(
	SELECT i.ctid FROM {p}inbox i
	WHERE i.ctid >= ?::text::tid AND i.ctid < ?::text::tid AND i.consumer + 0 = ? AND i.at < (SELECT {now}) - ? AND NOT EXISTS (
		SELECT FROM {p}queue q WHERE q.queue = {retries} AND q.consumer = ? AND q.id = i.id)
	LIMIT ?))

-- name: PurgeCounts
DELETE FROM {p}attempts WHERE ctid = ANY (ARRAY(
	SELECT a.ctid FROM {p}attempts a WHERE a.consumer = ? AND a.at < (SELECT {now}) - ? LIMIT ?))
