UPDATE {schema}.`{table}`
SET owner = ?, expires_at = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND,
    acquired_at = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND
WHERE resource = ? AND CAST(CONVERT(owner USING utf8mb4) AS BINARY) = ?
    AND expires_at = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND AND NOT ({read_only})
    -- The clock of a statement is that of its beginning, and SYSDATE that of the moment, when the row is locked.
    AND {now} + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) < ?
