-- All records of one key.
SELECT key, id, mode, state, token, epoch, expires, granted_at, renewed_at,
       group_name, host, pid, program, comment, reason
FROM {prefix}holders
WHERE key = ?1
ORDER BY id
