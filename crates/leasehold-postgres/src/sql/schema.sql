-- Everything that Leasehold keeps in PostgreSQL: schema version 1. https://docs.rs/leasehold-postgres explains every column.
-- {schema} stands for the option schema, "leasehold" by default, which exists by now.

-- The version of all objects of this schema, and of its functions: one row. Functions of a later version serve clients
-- that know an earlier one.
CREATE TABLE IF NOT EXISTS {schema}.version (
    version integer NOT NULL
);
ALTER TABLE {schema}.version ADD COLUMN IF NOT EXISTS functions integer;
INSERT INTO {schema}.version (version) SELECT 1 WHERE NOT EXISTS (SELECT FROM {schema}.version);
UPDATE {schema}.version SET functions = {functions};

-- The high-water mark of the tokens (C7): no row that was removed had a higher counter. A sequence, because its changes are
-- seen at once, and are never undone.
CREATE SEQUENCE IF NOT EXISTS {schema}.mark AS bigint MINVALUE 0 START 0 MAXVALUE 9007199254740991;

-- The rows of a key are slots. Slot 0 exists as long as the key has a lease or a mark of an evicted one; every operation on
-- the key locks it first. A slot with an id has a lease; in a slot without one, all columns after it mean nothing. An
-- exclusive lease is in slot 0. More than one shared lease, and the marks of evicted leases, take further slots,
-- which are used again.
-- There is no index on a column that changes, and half of each page is free, so that updates stay in their page. A vacuum leaves
-- the file as it is, for rows come and go, and to shorten it would lock the table. There are no constraints but the key: each would cost every update as much as a tenth of it. The reader checks each value.
CREATE TABLE IF NOT EXISTS {schema}.leases (
    key        text COLLATE "C" NOT NULL,
    slot       integer NOT NULL,
    counter    bigint  NOT NULL DEFAULT 0,
    others     integer NOT NULL DEFAULT 0,
    id         bytea,
    shared     boolean,
    state      "char",
    token      bigint,
    expires    bigint,
    granted_at bigint,
    renewed_at bigint,
    group_name text,
    host       text,
    pid        bigint,
    program    text,
    comment    text,
    reason     text,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 50, vacuum_truncate = off);

-- Who listens for a key, until when. Only hints depend on it, so a crash may empty it.
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.waiters (
    key      text COLLATE "C" NOT NULL,
    listener text   NOT NULL,
    until    bigint NOT NULL,
    PRIMARY KEY (key, listener)
);
CREATE INDEX IF NOT EXISTS waiters_until ON {schema}.waiters (until);

-- The server's clock: microseconds since 1970-01-01 UTC, whatever the session's time zone. Exact: a double has 53 bits.
CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
$$;
