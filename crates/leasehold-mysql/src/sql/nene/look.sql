-- Always returns a row, with the state of the session and of the server.
SELECT {columns}
FROM (SELECT 1) AS one LEFT JOIN {schema}.`{table}` ON resource = ?
