CREATE TABLE {p}schema (
	version INTEGER PRIMARY KEY,
	name TEXT NOT NULL,
	at INTEGER NOT NULL,
	beat INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE {p}consumers (
	num INTEGER PRIMARY KEY,
	name BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE {p}inbox (
	consumer INTEGER NOT NULL,
	id BLOB NOT NULL,
	fp INTEGER NOT NULL,
	at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE {p}attempts (
	consumer BLOB NOT NULL,
	id BLOB NOT NULL,
	n INTEGER NOT NULL,
	at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE {p}positions (
	consumer BLOB NOT NULL,
	log BLOB NOT NULL,
	part INTEGER NOT NULL,
	next INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	PRIMARY KEY (consumer, log, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE {p}queue (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	queue BLOB NOT NULL,
	consumer BLOB NOT NULL,
	id BLOB NOT NULL,
	fp INTEGER NOT NULL,
	state INTEGER NOT NULL,
	due INTEGER NOT NULL,
	fence INTEGER NOT NULL DEFAULT 0,
	leases INTEGER NOT NULL DEFAULT 0,
	attempts INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	produced_at INTEGER NOT NULL,
	order_key BLOB NOT NULL,
	msg_id BLOB NOT NULL,
	msg_key BLOB NOT NULL,
	topic BLOB NOT NULL,
	reason TEXT NOT NULL,
	origin TEXT NOT NULL,
	headers BLOB NOT NULL,
	body BLOB NOT NULL,
	UNIQUE (queue, consumer, id, fp)
) STRICT;

CREATE INDEX {p}queue_due ON {p}queue (queue, consumer, due, seq) WHERE state < 3;

CREATE INDEX {p}queue_order ON {p}queue (queue, consumer, order_key, seq) WHERE state < 3 AND order_key <> x'';

CREATE VIEW {p}messages (consumer, id, at) AS
SELECT CAST(c.name AS TEXT),
	CASE
		WHEN substr(i.id, 1, 1) = x'01' AND length(i.id) = 17 THEN lower(
			substr(hex(i.id), 3, 8) || '-' || substr(hex(i.id), 11, 4) || '-' || substr(hex(i.id), 15, 4) || '-' ||
			substr(hex(i.id), 19, 4) || '-' || substr(hex(i.id), 23, 12))
		WHEN substr(i.id, 1, 1) <= x'03' THEN 'sha256:' || lower(substr(hex(i.id), 3))
		ELSE CAST(i.id AS TEXT)
	END,
	strftime('%Y-%m-%d %H:%M:%f', i.at / 1000.0, 'unixepoch')
FROM {p}inbox i JOIN {p}consumers c ON c.num = i.consumer;

INSERT INTO {p}schema (version, name, at) VALUES (1, 'tables', {now});
