-- Records in the order of key and slot, after a position, and the server's clock.
SELECT (SELECT {schema}.now_us()) AS o_now, {schema}.shown(lease) AS o_holder
FROM {schema}.leases AS lease
WHERE (SELECT {schema}.writable()) AND (key, slot) OPERATOR(pg_catalog.>) ($1, $2) AND id IS NOT NULL AND coalesce(state, '') OPERATOR(pg_catalog.<>) 'e'
ORDER BY key, slot
LIMIT $3
