-- What may be purged among the next rows after a position, or of these keys; the last of these rows in any case. Whether
-- it is the last and more may follow, whether its record is over, and whether its counter may be forgotten once no record
-- is left. $5 is how far a counter must lie behind the server's clock for that; without it, none is forgotten.
SELECT n, {schema}.shown(lease), nth = rows AND rows = $4, over, old
FROM (SELECT {schema}.now_us() AS n) AS clock, LATERAL (
    SELECT lease, row_number() OVER (ORDER BY (lease).key, (lease).slot) AS nth, count(*) OVER () AS rows,
        (lease).id IS NOT NULL AND coalesce((lease).expires <= n, false) AS over,
        (lease).slot = 0 AND coalesce((lease).counter + $5 < n, false)
            AND ((lease).id IS NULL OR coalesce((lease).expires <= n, false)) AS old
    FROM (
        SELECT lease FROM {schema}.leases AS lease
        WHERE (SELECT {schema}.writable()) AND ($3::text[] IS NULL OR key = ANY ($3)) AND (key, slot) > ($1, $2)
        ORDER BY key, slot
        LIMIT $4
    ) AS next
) AS page
WHERE nth = rows OR over OR old
