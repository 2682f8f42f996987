-- Ends exclusive leases, each of one key. No key occurs twice. The array is one of arrays: key and id in hexadecimal
-- digits, token. A lease that is missing in the reply may be held or not: release decides about it.
INSERT INTO {schema}.leasehold_leases (`key`, slot)
SELECT lease.`key`, 0
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
WHERE NOT ({read_only}) AND lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h' AND (w.o IS NULL OR lease.token = w.o)
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE state = 'f'
RETURNING `key` AS o_key, COALESCE(expires <= {live}, FALSE) AS o_late
