-- Extends exclusive leases, each of one key. No key occurs twice. The array is one of arrays: key and id in hexadecimal
-- digits, what they are extended to, token, token to raise to. A lease that is missing in the reply may be held or not:
-- renew decides about it.
INSERT INTO {schema}.leasehold_leases (`key`, slot, counter, token, expires)
SELECT lease.`key`, 0, GREATEST(lease.counter, COALESCE(w.r, 0)), GREATEST(lease.token, COALESCE(w.r, 0)),
    GREATEST(lease.expires, clock.n + w.t)
FROM (SELECT {live} AS n LIMIT 1) AS clock
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (
    k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', t BIGINT PATH '$[2]', o BIGINT PATH '$[3]',
    r BIGINT PATH '$[4]')) AS w
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
WHERE NOT ({read_only}) AND lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h'
    AND (lease.expires IS NULL OR lease.expires > clock.n) AND (w.o IS NULL OR lease.token = w.o)
    AND (w.r IS NULL OR w.r <= (
        SELECT GREATEST(COALESCE(MAX(value), 0), 4503599627370496) + 4294967296 FROM {schema}.leasehold_mark
    ))
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE
    counter = VALUES(counter), token = VALUES(token), expires = VALUES(expires), renewed_at = clock.n
RETURNING `key` AS o_key, expires - renewed_at AS o_rest
