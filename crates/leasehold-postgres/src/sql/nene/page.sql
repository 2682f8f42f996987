-- Always returns a row, with the state of the session and of the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM {schema}."{table}" WHERE resource OPERATOR(pg_catalog.>) $1 ORDER BY resource LIMIT $2
) AS page ON true ORDER BY resource
