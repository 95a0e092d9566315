-- Run at every start, so it must change nothing the second time.
CREATE TABLE IF NOT EXISTS accounts (
    id    TEXT PRIMARY KEY NOT NULL,
    cents INTEGER NOT NULL
);

-- No unique constraint: an effect that happened twice would show as two rows.
CREATE TABLE IF NOT EXISTS ledger (
    payment_id TEXT NOT NULL,
    account    TEXT NOT NULL,
    cents      INTEGER NOT NULL
);

-- Names that a careless comparison takes for one another are different accounts: Ana and ana, and
-- café with é as one character (U+00E9) and as two (e, U+0301).
INSERT OR IGNORE INTO accounts (id, cents) VALUES
    ('Ana',          100000000),
    ('ana',          100000000),
    ('café',         100000000),
    ('café',         100000000),
    ('ana.maria',    100000000),
    ('zażółć',       100000000),
    ('gęślą jaźń',   100000000),
    ('東京',           100000000),
    ('大阪支店',         100000000),
    ('Zoë',          100000000),
    ('naïve',        100000000),
    ('Ωmega',        100000000),
    ('Björk Guðmundsdóttir', 100000000),
    ('O''Brien & Sons', 100000000),
    ('🦊',            100000000),
    ('👩‍👩‍👧',        100000000),
    ('Ёлка',         100000000),
    ('שלום',         100000000),
    ('مكتبة',        100000000),
    ('7',            100000000),
    ('007',          100000000),
    ('acct-0001',    100000000),
    ('acct-0002',    100000000),
    ('acct-0003',    100000000);
