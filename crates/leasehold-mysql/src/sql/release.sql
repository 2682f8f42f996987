-- Ends one lease on all its keys, or keeps them taken for p_keep longer. p_keys is an array of arrays that begin with a
-- key in hexadecimal digits. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release(
    p_id VARBINARY(255),
    p_keys LONGTEXT,
    p_keep BIGINT,
    p_token BIGINT
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, kept_end BIGINT;
    DECLARE wanted, held, expired, kept INT;
    DECLARE is_locked BOOLEAN;
    {rolls_back}
    {begins}
    -- An acquire of this lease that is not committed lets this fail, and the client tries again.
    {locks}
    SET n = {now}, wanted = JSON_LENGTH(p_keys);
    SELECT
        COUNT(IF(lease.state = 'h' AND (lease.expires IS NULL OR lease.expires > n), 1, NULL)),
        COUNT(IF(lease.state = 'h' AND lease.expires <= n, 1, NULL)),
        COUNT(IF(lease.state = 'k' AND lease.expires > n, 1, NULL)),
        MIN(lease.expires)
    INTO held, expired, kept, kept_end
    FROM {rows} AND lease.id = p_id
    WHERE lease.state <> 'f' AND (p_token IS NULL OR lease.token = p_token);
    IF p_keep IS NOT NULL AND held = wanted THEN
        UPDATE {own_rows} AND lease.id = p_id
        SET lease.state = 'k', lease.expires = n + p_keep
        WHERE lease.state = 'h';
        COMMIT;
        SELECT 'kept' AS outcome, p_keep AS o_rest;
        LEAVE whole;
    END IF;
    IF p_keep IS NOT NULL AND kept = wanted THEN
        COMMIT;
        SELECT 'kept' AS outcome, kept_end - n AS o_rest;
        LEAVE whole;
    END IF;
    IF held + expired > 0 THEN
        UPDATE {own_rows} AND lease.id = p_id
        SET lease.state = 'f'
        WHERE lease.state = 'h' AND (p_token IS NULL OR lease.token = p_token);
        CALL {schema}.leasehold_count_others(p_keys);
    END IF;
    CALL {schema}.leasehold_remove_free(p_keys);
    COMMIT;
    SELECT CASE WHEN held = wanted THEN 'released' WHEN expired > 0 THEN 'expired' ELSE 'not held' END AS outcome;
END
