-- The clock is read when the row is locked.
WITH locked AS MATERIALIZED (SELECT 1 FROM {schema}."{table}" WHERE resource OPERATOR(pg_catalog.=) $4 FOR UPDATE),
    clock AS MATERIALIZED (SELECT {now} AS now FROM locked WHERE {durably})
UPDATE {schema}."{table}"
SET owner = $1, expires_at = timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $2::bigint),
    acquired_at = timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::bigint)
FROM clock
WHERE resource OPERATOR(pg_catalog.=) $4 AND owner COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $5
    AND expires_at OPERATOR(pg_catalog.=)
        (timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $6::bigint))
    AND clock.now OPERATOR(pg_catalog.<) $7
RETURNING 1
