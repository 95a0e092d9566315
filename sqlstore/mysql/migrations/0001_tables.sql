CREATE TABLE IF NOT EXISTS {p}schema (
	version INT NOT NULL PRIMARY KEY,
	name VARBINARY(255) NOT NULL,
	at BIGINT NOT NULL,
	beat BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {p}consumers (
	num INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	name VARBINARY(255) NOT NULL,
	UNIQUE KEY name (name)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {p}inbox (
	consumer INT NOT NULL,
	id VARBINARY(255) NOT NULL,
	fp BIGINT NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (consumer, id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {p}attempts (
	consumer VARBINARY(255) NOT NULL,
	id VARBINARY(255) NOT NULL,
	n INT NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (consumer, id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {p}positions (
	consumer VARBINARY(255) NOT NULL,
	log VARBINARY(255) NOT NULL,
	part INT NOT NULL,
	next BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	PRIMARY KEY (consumer, log, part)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS {p}queue (
	seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	queue VARBINARY(255) NOT NULL,
	consumer VARBINARY(255) NOT NULL,
	id VARBINARY(255) NOT NULL,
	fp BIGINT NOT NULL,
	state TINYINT NOT NULL,
	live TINYINT GENERATED ALWAYS AS (state < 3) VIRTUAL,
	due BIGINT NOT NULL,
	fence BIGINT NOT NULL DEFAULT 0,
	leases INT NOT NULL DEFAULT 0,
	attempts INT NOT NULL,
	created_at BIGINT NOT NULL,
	produced_at BIGINT NOT NULL,
	order_key VARBINARY(255) NOT NULL,
	msg_id MEDIUMBLOB NOT NULL,
	msg_key MEDIUMBLOB NOT NULL,
	topic MEDIUMBLOB NOT NULL,
	reason LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	origin LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	headers LONGBLOB NOT NULL,
	body LONGBLOB NOT NULL,
	UNIQUE KEY waits (queue, consumer, id, fp),
	KEY due (queue, consumer, live, due, seq),
	KEY in_order (queue, consumer, live, order_key, seq)
) ENGINE = InnoDB;

CREATE OR REPLACE VIEW {p}messages (consumer, id, at) AS
SELECT CONVERT(c.name USING utf8mb4),
	CASE
		WHEN LEFT(i.id, 1) = x'01' AND LENGTH(i.id) = 17 THEN LOWER(CONCAT_WS('-',
			SUBSTR(HEX(i.id), 3, 8), SUBSTR(HEX(i.id), 11, 4), SUBSTR(HEX(i.id), 15, 4),
			SUBSTR(HEX(i.id), 19, 4), SUBSTR(HEX(i.id), 23, 12)))
		WHEN LEFT(i.id, 1) <= x'03' THEN CONCAT('sha256:', LOWER(SUBSTR(HEX(i.id), 3)))
		ELSE CONVERT(i.id USING utf8mb4)
	END,
	TIMESTAMPADD(MICROSECOND, i.at * 1000, TIMESTAMP '1970-01-01 00:00:00')
FROM {p}inbox i JOIN {p}consumers c ON c.num = i.consumer;

INSERT INTO {p}schema (version, name, at) VALUES (1, 'tables', {now});
