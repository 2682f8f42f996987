STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
WHERE lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h' AND (w.o IS NULL OR lease.token = w.o)
    AND lease.others = 0
