-- Registers a listener for these keys, until it stays or for at least so many microseconds, in steps of 30 s, so that most
-- of its next calls change nothing; and forgets others whose time is over.
WITH forgotten AS (
    DELETE FROM {schema}.waiters WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
        SELECT ctid FROM {schema}.waiters
        WHERE until OPERATOR(pg_catalog.<) (SELECT {schema}.now_us()) AND listener OPERATOR(pg_catalog.<>) $2
        ORDER BY until LIMIT 100 FOR UPDATE SKIP LOCKED
    ))
)
INSERT INTO {schema}.waiters AS known (key, listener, until)
SELECT name, $2,
    ((({schema}.now_us() OPERATOR(pg_catalog.+) $3) OPERATOR(pg_catalog./) 30000000) OPERATOR(pg_catalog.+) 1)
        OPERATOR(pg_catalog.*) 30000000
FROM pg_catalog.unnest($1) AS wanted (name)
ON CONFLICT (key, listener) DO UPDATE SET until = excluded.until
WHERE known.until OPERATOR(pg_catalog.<) excluded.until
