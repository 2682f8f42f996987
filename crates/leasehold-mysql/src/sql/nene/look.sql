-- Has a row in any case, which tells about the session and the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN {schema}.`{table}` ON resource = ?
