-- All records of these keys, and the server's clock.
SELECT (SELECT {schema}.now_us()) AS o_now, {schema}.shown(lease) AS o_holder
FROM {schema}.leases AS lease
WHERE (SELECT {schema}.writable()) AND key OPERATOR(pg_catalog.=) ANY ($1) AND id IS NOT NULL
ORDER BY key, slot
