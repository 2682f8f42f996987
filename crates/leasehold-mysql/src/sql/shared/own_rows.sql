(
    SELECT UNHEX(w.k) AS name FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
    LIMIT 1000000
) AS own
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = own.name
