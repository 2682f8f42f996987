DELETE FROM {schema}.`{table}`
WHERE resource = ? AND CAST(CONVERT(owner USING utf8mb4) AS BINARY) = ?
    AND expires_at = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND AND NOT ({read_only})
