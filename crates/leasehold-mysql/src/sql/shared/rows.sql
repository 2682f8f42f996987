JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k)
