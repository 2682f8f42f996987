-- Removes so many of the records that ended at this instant or before, the oldest first: whatever is of an earlier
-- epoch.
DELETE FROM {prefix}holders
WHERE (key, id) IN (
    SELECT key, id
    FROM {prefix}holders INDEXED BY {prefix}holders_by_expiry
    WHERE expires >= 0 AND (epoch, expires) <= (?1, ?2)
    ORDER BY epoch, expires
    LIMIT ?3
)
