-- As renew, for an exclusive lease of one key.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_renew_one(
    p_key VARBINARY(1024),
    p_id VARBINARY(255),
    p_to BIGINT,
    p_token BIGINT,
    p_raise BIGINT
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, old_end, ends BIGINT;
    DECLARE found INT;
    {rolls_back}
    {begins}
    IF p_raise IS NOT NULL THEN
        {reads_mark}
    END IF;
    SELECT COUNT(*), MAX(expires) INTO found, old_end FROM {schema}.leasehold_leases
    WHERE `key` = p_key AND slot = 0 AND id = p_id AND NOT shared AND state = 'h'
        AND (p_token IS NULL OR token = p_token) AND (p_raise IS NULL OR p_raise <= {most_raised})
    FOR UPDATE SKIP LOCKED;
    -- C6: after a wait for the table.
    SET n = {now};
    IF found = 1 AND (old_end IS NULL OR old_end > n) THEN
        SET ends = GREATEST(old_end, n + p_to);
        UPDATE {schema}.leasehold_leases
        SET expires = ends, renewed_at = n, token = GREATEST(token, COALESCE(p_raise, 0)),
            counter = GREATEST(counter, COALESCE(p_raise, 0))
        WHERE `key` = p_key AND slot = 0;
        COMMIT;
        SELECT 'held' AS outcome, ends - n AS o_rest;
        LEAVE whole;
    END IF;
    COMMIT;
    CALL {schema}.leasehold_renew(p_id, CONCAT('[["', HEX(p_key), '",-1]]'), p_to, p_token, p_raise);
END
