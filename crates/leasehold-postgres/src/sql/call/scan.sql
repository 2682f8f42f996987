-- What may be purged among the next rows after a position, or of these keys; the last of these rows in any case. Whether
-- it is the last and more may follow, and whether its record is over.
SELECT n AS o_now, {schema}.shown(lease) AS o_holder, nth OPERATOR(pg_catalog.=) rows AND rows OPERATOR(pg_catalog.=) $4 AS o_more,
    over AS o_over
FROM (SELECT {schema}.now_us() AS n) AS clock, LATERAL (
    SELECT lease, pg_catalog.row_number() OVER (ORDER BY (lease).key, (lease).slot) AS nth,
        pg_catalog.count(*) OVER () AS rows, (lease).id IS NOT NULL AND is_over AS over
    FROM (
        SELECT lease, coalesce(expires OPERATOR(pg_catalog.<=) n, false) AS is_over FROM {schema}.leases AS lease
        WHERE (SELECT {schema}.writable()) AND ($3 IS NULL OR key OPERATOR(pg_catalog.=) ANY ($3))
            AND (key, slot) OPERATOR(pg_catalog.>) ($1, $2)
        ORDER BY key, slot
        LIMIT $4
    ) AS next
) AS page
WHERE nth OPERATOR(pg_catalog.=) rows OR over
