-- Has a row in any case, which tells about the session and the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN (
    SELECT * FROM {schema}.`{table}` WHERE resource > ? ORDER BY resource LIMIT ?
) AS page ON TRUE ORDER BY resource
