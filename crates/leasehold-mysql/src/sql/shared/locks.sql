CALL {schema}.leasehold_lock(p_keys, is_locked);
IF is_locked THEN
    ROLLBACK;
    SELECT 'locked' AS outcome;
    LEAVE whole;
END IF;
