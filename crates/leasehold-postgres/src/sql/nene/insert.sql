-- The commit is durable: the setting holds until the end of the transaction.
INSERT INTO {schema}."{table}" (resource, owner, expires_at, acquired_at)
SELECT $1, $2, timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::bigint),
    timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $4::bigint)
WHERE {durably}
ON CONFLICT (resource) DO NOTHING RETURNING 1
