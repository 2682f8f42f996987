-- ?8 is the clock, in microseconds, read once the transaction has the write lock.
UPDATE {table}
SET owner = ?1, expires_at = datetime(?2, 'unixepoch'), acquired_at = datetime(?3, 'unixepoch')
WHERE resource = ?4 AND owner = ?5 AND expires_at = datetime(?6, 'unixepoch') AND ?8 < ?7
