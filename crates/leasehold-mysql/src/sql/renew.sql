-- Extends one lease on all its keys to at least p_to, or without end. p_keys as in acquire: only the sign of a limit
-- counts. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_renew(
    p_id VARBINARY(255),
    p_keys LONGTEXT,
    p_to BIGINT,
    p_token BIGINT,
    p_raise BIGINT
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, own_end BIGINT;
    DECLARE held, evicted, expired INT;
    DECLARE conflict VARBINARY(1024);
    DECLARE why VARBINARY(255);
    DECLARE is_locked BOOLEAN;
    {rolls_back}
    {begins}
    {locks}
    {reads_mark}
    SET n = {now};
    SELECT COUNT(*), MIN(IF(lease.shared = (w.l >= 0), NULL, lease.`key`)) INTO held, conflict
    FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', l INT PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.id = p_id
    WHERE lease.state = 'h' AND (lease.expires IS NULL OR lease.expires > n)
        AND (p_token IS NULL OR lease.token = p_token);
    IF conflict IS NOT NULL THEN
        ROLLBACK;
        SELECT 'mode' AS outcome, conflict AS o_key;
        LEAVE whole;
    END IF;
    IF held = JSON_LENGTH(p_keys) AND p_raise > {most_raised} THEN
        SELECT 'raise' AS outcome, {most_raised} AS o_most;
        ROLLBACK;
        LEAVE whole;
    END IF;
    IF held = JSON_LENGTH(p_keys) THEN
        UPDATE {own_rows} AND lease.id = p_id AND lease.state = 'h'
        SET lease.expires = IF(lease.expires IS NULL OR p_to IS NULL, NULL, GREATEST(lease.expires, n + p_to)),
            lease.renewed_at = n, lease.token = GREATEST(lease.token, COALESCE(p_raise, 0));
        UPDATE {own_rows} AND lease.slot = 0
        SET lease.counter = p_raise
        WHERE p_raise > lease.counter;
        SELECT MIN(lease.expires) INTO own_end
        FROM {rows} AND lease.id = p_id AND lease.state = 'h';
        COMMIT;
        SELECT 'held' AS outcome, own_end - n AS o_rest;
        LEAVE whole;
    END IF;
    -- C3b: a lease that has lost a key has lost all of them.
    SELECT MIN(IF(lease.state = 'e', w.nth, NULL)), COUNT(IF(lease.state = 'h' AND lease.expires <= n, 1, NULL))
    INTO evicted, expired
    FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.id = p_id
    WHERE p_token IS NULL OR lease.token = p_token;
    IF evicted IS NOT NULL THEN
        SET why = (
            SELECT lease.reason
            FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
            STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.id = p_id
            WHERE w.nth = evicted AND lease.state = 'e' AND (p_token IS NULL OR lease.token = p_token)
            LIMIT 1
        );
    END IF;
    CALL {schema}.leasehold_drop_held(p_keys, p_id, n, p_token);
    CALL {schema}.leasehold_remove_free(p_keys);
    COMMIT;
    SELECT CASE WHEN evicted IS NOT NULL THEN 'evicted' WHEN expired > 0 THEN 'expired' ELSE 'gone' END AS outcome,
        why AS o_reason;
END
