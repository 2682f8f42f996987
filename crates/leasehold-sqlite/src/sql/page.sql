-- Records in the order of key and lease id, after a position. The reader stops when it has enough.
SELECT key, id, mode, state, token, epoch, expires, granted_at, renewed_at,
       group_name, host, pid, program, comment, reason
FROM {prefix}holders
WHERE (key, id) > (?1, ?2)
ORDER BY key, id
