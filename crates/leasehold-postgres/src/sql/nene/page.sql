-- Has a row in any case, which tells about the session and the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM {schema}."{table}" WHERE resource OPERATOR(pg_catalog.>) $1 ORDER BY resource LIMIT $2
) AS page ON true ORDER BY resource
