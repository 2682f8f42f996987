-- Always returns a row, with the state of the session and of the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM {schema}.`{table}` WHERE resource > ? ORDER BY resource LIMIT ?
) AS page ON TRUE ORDER BY resource
