INSERT INTO {prefix}holders (
    key, id, mode, state, token, epoch, expires, granted_at, renewed_at,
    group_name, host, pid, program, comment, reason
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (key, id) DO UPDATE SET
    mode = excluded.mode,
    state = excluded.state,
    token = excluded.token,
    epoch = excluded.epoch,
    expires = excluded.expires,
    granted_at = excluded.granted_at,
    renewed_at = excluded.renewed_at,
    group_name = excluded.group_name,
    host = excluded.host,
    pid = excluded.pid,
    program = excluded.program,
    comment = excluded.comment,
    reason = excluded.reason
