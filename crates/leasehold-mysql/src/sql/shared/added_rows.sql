(
    SELECT lease.`key` AS name
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.batch = p_batch
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) AS own
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = own.name AND lease.slot = 0
