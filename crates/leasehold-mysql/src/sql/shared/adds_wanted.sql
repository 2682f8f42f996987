{at_once}
INSERT INTO {schema}.leasehold_leases (
    `key`, slot, batch, counter, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
)
SELECT UNHEX(w.k), 0, p_batch, new_token, UNHEX(w.i), FALSE, 'h', new_token, n + w.t, n, UNHEX(w.g), p_host, p_pid,
    p_program, UNHEX(w.c)
FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
    k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', t BIGINT PATH '$[2]', g VARCHAR(510) PATH '$[3]',
    c VARCHAR(1024) PATH '$[4]')) AS w
