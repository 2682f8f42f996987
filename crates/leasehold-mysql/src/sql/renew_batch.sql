-- Extends exclusive leases, each of one key. No key occurs twice. p_wanted is an array of arrays: key and id in
-- hexadecimal digits, what they are extended to, token, token to raise to. A lease that is missing in the reply may be
-- held or not: renew decides about it.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_renew_batch(p_batch BIGINT, p_wanted LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE n, mark BIGINT;
    DECLARE found INT;
    {reads_mark}
    SELECT COUNT(lease.slot) INTO found
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h'
    FOR UPDATE SKIP LOCKED;
    -- C6: after a wait for the table.
    SET n = {now};
    UPDATE (
        SELECT lease.`key` AS name, IF(lease.expires IS NULL OR w.t IS NULL, NULL, GREATEST(lease.expires, n + w.t)) AS ends,
            GREATEST(lease.token, COALESCE(w.r, 0)) AS new_token, GREATEST(lease.counter, COALESCE(w.r, 0)) AS new_counter
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
            k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', t BIGINT PATH '$[2]', o BIGINT PATH '$[3]',
            r BIGINT PATH '$[4]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h'
            AND (lease.expires IS NULL OR lease.expires > n) AND (w.o IS NULL OR lease.token = w.o)
            AND (w.r IS NULL OR w.r <= {most_raised})
        LIMIT 1000000
        FOR UPDATE SKIP LOCKED
    ) AS held
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = held.name AND lease.slot = 0
    SET lease.batch = p_batch, lease.expires = held.ends, lease.renewed_at = n, lease.token = held.new_token,
        lease.counter = held.new_counter;
    SELECT lease.`key` AS o_key, lease.expires - n AS o_rest
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.batch = p_batch AND lease.id = UNHEX(w.i);
END
