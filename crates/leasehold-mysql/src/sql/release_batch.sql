-- Ends exclusive leases, each of one key. No key occurs twice. p_wanted is an array of arrays: key and id in hexadecimal
-- digits, token. A lease that is missing in the reply may be held or not: release decides about it.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release_batch(p_batch BIGINT, p_wanted LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE n BIGINT;
    {rolls_back}
    {begins}
    UPDATE (
        SELECT lease.`key` AS name
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
            k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h' AND (w.o IS NULL OR lease.token = w.o)
        LIMIT 1000000
        FOR UPDATE SKIP LOCKED
    ) AS held
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = held.name AND lease.slot = 0
    SET lease.batch = p_batch, lease.state = 'f';
    SET n = {now};
    SELECT lease.`key` AS o_key, COALESCE(lease.expires <= n, FALSE) AS o_late
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.batch = p_batch AND lease.id = UNHEX(w.i);
    COMMIT;
END
