-- As acquire, for an exclusive lease of one key. Most keys are free, or have an exclusive holder.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_acquire_one(
    p_key VARBINARY(1024),
    p_id VARBINARY(255),
    p_term BIGINT,
    p_group VARBINARY(255),
    p_host VARBINARY(255),
    p_pid BIGINT,
    p_program VARBINARY(255),
    p_comment VARBINARY(512)
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, won BIGINT;
    DECLARE found, refuses INT;
    {rolls_back}
    {begins}
    SET n = {now};
    SELECT MAX({token}) INTO won FROM {schema}.leasehold_leases
    WHERE `key` = p_key AND slot = 0 AND others = 0 AND (state = 'f' OR expires <= n) AND counter < 9007199254740991
    FOR UPDATE SKIP LOCKED;
    -- Again, after a wait for the table.
    SET n = {now};
    IF won IS NOT NULL THEN
        SET won = GREATEST(won, LEAST(n, 4503599627370496));
        UPDATE {schema}.leasehold_leases
        SET counter = won, id = p_id, shared = FALSE, state = 'h', token = won, expires = n + p_term, granted_at = n,
            renewed_at = NULL, group_name = p_group, host = p_host, pid = p_pid, program = p_program, comment = p_comment
        WHERE `key` = p_key AND slot = 0;
        COMMIT;
        SELECT 'granted' AS outcome, won AS o_token, p_term AS o_rest;
        LEAVE whole;
    END IF;
    SELECT COUNT(*), COUNT(IF(state <> 'f' AND id <> p_id AND NOT shared AND (expires IS NULL OR expires > n), 1, NULL))
    INTO found, refuses
    FROM {schema}.leasehold_leases WHERE `key` = p_key AND slot = 0;
    IF found = 0 THEN
        -- If another transaction is adding it too, this fails, on MariaDB at once, and acquire decides.
        {reads_mark}
        SET won = {least_token};
        {at_once}
        INSERT INTO {schema}.leasehold_leases (
            `key`, slot, counter, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
        )
        VALUES (
            p_key, 0, won, p_id, FALSE, 'h', won, n + p_term, n, p_group, p_host, p_pid, p_program, p_comment
        );
        -- C7: the key is won by now. Somebody else may have taken and released it after the token was drawn.
        {reads_mark}
        IF mark >= won THEN
            SET won = {least_token};
            UPDATE {schema}.leasehold_leases SET counter = won, token = won WHERE `key` = p_key AND slot = 0;
        END IF;
        IF won > 9007199254740991 THEN
            ROLLBACK;
            SELECT 'exhausted' AS outcome;
            LEAVE whole;
        END IF;
        COMMIT;
        SELECT 'granted' AS outcome, won AS o_token, n + p_term - {now} AS o_rest;
        LEAVE whole;
    END IF;
    COMMIT;
    -- An exclusive holder refuses without a lock on the row, and so without a write.
    IF refuses = 1 THEN
        -- If it has just changed, there is no row, and acquire decides.
        SELECT 'refused' AS outcome, expires - n AS o_rest, n AS o_now, lease.*
        FROM {schema}.leasehold_leases AS lease
        WHERE `key` = p_key AND slot = 0 AND state <> 'f' AND id <> p_id AND NOT shared
            AND (expires IS NULL OR expires > n);
        COMMIT;
        LEAVE whole;
    END IF;
    COMMIT;
    CALL {schema}.leasehold_acquire(
        p_id, CONCAT('[["', HEX(p_key), '",-1]]'), p_term, p_group, p_host, p_pid, p_program, p_comment
    );
END
