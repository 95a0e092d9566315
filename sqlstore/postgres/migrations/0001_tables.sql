CREATE TABLE {p}schema (
	version integer PRIMARY KEY,
	name text NOT NULL,
	at bigint NOT NULL,
	beat bigint NOT NULL DEFAULT 0
);

CREATE TABLE {p}consumers (
	num integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name bytea NOT NULL UNIQUE
);

CREATE TABLE {p}inbox (
	at bigint NOT NULL,
	fp bigint NOT NULL,
	consumer integer NOT NULL,
	id bytea NOT NULL,
	PRIMARY KEY (consumer, id)
);

CREATE TABLE {p}attempts (
	consumer bytea NOT NULL,
	id bytea NOT NULL,
	n integer NOT NULL,
	at bigint NOT NULL,
	PRIMARY KEY (consumer, id)
);

CREATE TABLE {p}positions (
	consumer bytea NOT NULL,
	log bytea NOT NULL,
	part integer NOT NULL,
	next bigint NOT NULL,
	epoch bigint NOT NULL,
	PRIMARY KEY (consumer, log, part)
);

CREATE TABLE {p}queue (
	seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	fp bigint NOT NULL,
	due bigint NOT NULL,
	fence bigint NOT NULL DEFAULT 0,
	created_at bigint NOT NULL,
	produced_at bigint NOT NULL,
	leases integer NOT NULL DEFAULT 0,
	attempts integer NOT NULL,
	state smallint NOT NULL,
	queue bytea NOT NULL,
	consumer bytea NOT NULL,
	id bytea NOT NULL,
	order_key bytea NOT NULL,
	msg_id bytea NOT NULL,
	msg_key bytea NOT NULL,
	topic bytea NOT NULL,
	reason text NOT NULL,
	origin text NOT NULL,
	headers bytea NOT NULL,
	body bytea NOT NULL,
	UNIQUE (queue, consumer, id, fp)
);

CREATE INDEX {p}queue_due ON {p}queue (queue, consumer, due, seq) WHERE state < 3;

CREATE INDEX {p}queue_order ON {p}queue (queue, consumer, order_key, seq) WHERE state < 3 AND order_key <> '';

CREATE TABLE {p}nothing (num integer PRIMARY KEY CHECK (false));

COMMENT ON TABLE {p}nothing IS 'Always empty, so that every row of {p}guard breaks its constraint.';

CREATE UNLOGGED TABLE {p}guard (
	backend integer NOT NULL DEFAULT pg_backend_pid(),
	nothing integer NOT NULL,
	CONSTRAINT {p}only_the_store_commits FOREIGN KEY (nothing) REFERENCES {p}nothing DEFERRABLE INITIALLY DEFERRED
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX {p}guard_backend ON {p}guard (backend);

COMMENT ON TABLE {p}guard IS 'A handler''s transaction has a row here, which the store removes just before it commits. No other COMMIT succeeds.';

-- Inserts the records of a consumer, in the order given, unless they are parked, held or lost, and
-- returns the ids of those that it has not inserted. seqs, fences and keys may be NULL; a sequence is 0
-- where there is no row. What is parked or held is looked at after the insert, which may have waited
-- for a transaction that parked. Only index scans are allowed, for a plan made while the queue was
-- empty must not be used when it is full. Every statement ends in the middle of a line or before one
-- that is not empty, for empty lines part the statements of a migration.
CREATE FUNCTION {p}claim(_num integer, _consumer bytea, _ids bytea[], _fps bigint[], _seqs bigint[], _fences bigint[], _keys bytea[], _patience integer)
RETURNS SETOF bytea LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
	_before text := current_setting('lock_timeout');
	_now bigint := {now};
	_ours bigint[];
	_fresh bytea[];
	_not bytea[];
BEGIN
	IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
		RAISE feature_not_supported USING MESSAGE = 'onceward: a claim needs READ COMMITTED: above that, a transaction that waited for another does not see what it has done';
	END IF;
	PERFORM set_config('lock_timeout', _patience::text, true);
	IF _seqs IS NOT NULL THEN
		SELECT array_agg(l.seq) INTO _ours FROM (
			SELECT q.seq FROM unnest(_seqs, _fences) AS v(seq, fence) JOIN {p}queue q ON q.seq = v.seq AND q.fence = v.fence
			WHERE q.state = 2 ORDER BY q.seq FOR UPDATE OF q) AS l;
	END IF;
	WITH new AS (
		INSERT INTO {p}inbox (consumer, id, fp, at)
		SELECT _num, v.id, v.fp, _now FROM unnest(_ids, _fps, _seqs) AS v(id, fp, seq)
		WHERE coalesce(v.seq, 0) = 0 OR v.seq = ANY (_ours)
		ON CONFLICT DO NOTHING RETURNING id)
	SELECT array_agg(new.id) INTO _fresh FROM new;
	IF EXISTS (SELECT FROM {p}queue q WHERE q.queue = {retries} AND q.consumer = _consumer) THEN
		SELECT array_agg(v.id) INTO _not FROM unnest(_ids, _fps, _seqs, _keys) AS v(id, fp, seq, key)
		WHERE EXISTS (
			SELECT FROM {p}queue q
			WHERE q.queue = {retries} AND q.consumer = _consumer AND q.id = v.id
				AND (v.fp = 0 OR q.fp = 0 OR q.fp = v.fp) AND q.seq <> coalesce(v.seq, 0))
		OR v.key <> '' AND EXISTS (
			SELECT FROM {p}queue q
			WHERE q.queue = {retries} AND q.consumer = _consumer AND q.order_key = v.key AND q.order_key <> ''
				AND q.state < 3 AND (v.seq = 0 OR q.seq < v.seq));
	END IF;
	PERFORM set_config('lock_timeout', _before, true);
	IF _not IS NULL AND cardinality(_fresh) = cardinality(_ids) THEN
		RETURN;
	END IF;
	DELETE FROM {p}inbox WHERE consumer = _num AND id IN (SELECT unnest(_fresh) INTERSECT SELECT unnest(_not));
	RETURN QUERY SELECT unnest(_not) UNION (SELECT unnest(_ids) EXCEPT SELECT unnest(_fresh));
END $$;

-- Adds a consumer, waiting for another who does at most so long.
CREATE FUNCTION {p}add_consumer(_name bytea, _patience integer)
RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
	_before text := current_setting('lock_timeout');
BEGIN
	PERFORM set_config('lock_timeout', _patience::text, true);
	INSERT INTO {p}consumers (name) VALUES (_name) ON CONFLICT DO NOTHING;
	PERFORM set_config('lock_timeout', _before, true);
END $$;

CREATE VIEW {p}messages (consumer, id, at) AS
SELECT encode(c.name, 'escape'),
	CASE
		WHEN substr(i.id, 1, 1) = '\x01' AND length(i.id) = 17 THEN encode(substr(i.id, 2), 'hex')::uuid::text
		WHEN substr(i.id, 1, 1) <= '\x03' THEN 'sha256:' || encode(substr(i.id, 2), 'hex')
		ELSE encode(i.id, 'escape')
	END,
	to_timestamp(i.at / 1000.0)
FROM {p}inbox i JOIN {p}consumers c ON c.num = i.consumer;

INSERT INTO {p}schema (version, name, at) VALUES (1, 'tables', {now});
