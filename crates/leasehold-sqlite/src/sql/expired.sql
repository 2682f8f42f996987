-- Records with a term in the order of their end, after a position: whatever is of an earlier epoch first. The
-- reader stops at the first live one, so it never sees more than one that is not over.
SELECT key, id, mode, state, token, epoch, expires, granted_at, renewed_at,
       group_name, host, pid, program, comment, reason
FROM {prefix}holders INDEXED BY {prefix}holders_by_expiry
WHERE expires IS NOT NULL AND (epoch, expires, key, id) > (?1, ?2, ?3, ?4)
ORDER BY epoch, expires, key, id
