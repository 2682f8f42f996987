-- A read-only server would let an administrator write.
INSERT INTO {schema}.`{table}` (resource, owner, expires_at, acquired_at)
SELECT ?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND
FROM (SELECT 1) AS one WHERE NOT ({read_only})
