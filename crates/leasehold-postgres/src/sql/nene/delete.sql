DELETE FROM {schema}."{table}"
WHERE resource OPERATOR(pg_catalog.=) $1 AND owner COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) $2
    AND expires_at OPERATOR(pg_catalog.=)
        (timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::bigint))
RETURNING 1
