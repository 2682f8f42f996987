-- As release, for one key that is not kept. A lease in slot 0 may be shared too.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release_one(
    p_key VARBINARY(1024),
    p_id VARBINARY(255),
    p_token BIGINT
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, ends BIGINT;
    DECLARE found INT;
    {rolls_back}
    {writable}
    START TRANSACTION;
    SELECT COUNT(*), MAX(expires) INTO found, ends FROM {schema}.leasehold_leases
    WHERE `key` = p_key AND slot = 0 AND id = p_id AND state = 'h' AND (p_token IS NULL OR token = p_token)
    FOR UPDATE SKIP LOCKED;
    SET n = {now};
    IF found = 1 THEN
        UPDATE {schema}.leasehold_leases SET state = 'f' WHERE `key` = p_key AND slot = 0;
        COMMIT;
        SELECT IF(ends <= n, 'expired', 'released') AS outcome;
        LEAVE whole;
    END IF;
    COMMIT;
    CALL {schema}.leasehold_release(p_id, CONCAT('[["', HEX(p_key), '"]]'), NULL, p_token);
END
