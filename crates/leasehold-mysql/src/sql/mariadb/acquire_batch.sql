-- Takes keys that are free, each for an exclusive lease of its own. No key occurs twice. The array is one of arrays:
-- key and id in hexadecimal digits, term, group and comment in hexadecimal digits. A key that is missing in the reply is
-- not free, is being changed by somebody else or is new: acquire decides about it.
INSERT INTO {schema}.leasehold_leases (`key`, slot, counter, id, expires, group_name, comment)
SELECT lease.`key`, 0, GREATEST(lease.counter + 1, clock.n), UNHEX(w.i), clock.n + w.t, UNHEX(w.g), UNHEX(w.c)
FROM (SELECT {live} AS n LIMIT 1) AS clock
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (
    k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', t BIGINT PATH '$[2]', g VARCHAR(510) PATH '$[3]',
    c VARCHAR(1024) PATH '$[4]')) AS w
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
WHERE NOT ({read_only}) AND lease.others = 0 AND (lease.state = 'f' OR lease.expires <= clock.n) AND lease.counter < 9007199254740991
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
    counter = VALUES(counter), id = VALUES(id), shared = FALSE, state = 'h', token = VALUES(counter),
    expires = VALUES(expires), granted_at = clock.n, renewed_at = NULL, group_name = VALUES(group_name), host = ?,
    pid = ?, program = ?, comment = VALUES(comment)
RETURNING `key` AS o_key, token AS o_token, expires - granted_at AS o_rest
