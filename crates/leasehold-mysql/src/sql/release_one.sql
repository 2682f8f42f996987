-- As release, for one key that is not kept. A lease in slot 0 may be shared too.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release_one(
    p_key VARBINARY(1024),
    p_id VARBINARY(255),
    p_token BIGINT
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, ends, highest, most BIGINT;
    DECLARE found, alone INT;
    {rolls_back}
    {begins}
    {reads_mark}
    SET most = {most_removed};
    SELECT COUNT(*), MAX(expires), MAX(counter), COUNT(IF(others = 0 AND counter <= most, 1, NULL))
    INTO found, ends, highest, alone
    FROM {schema}.leasehold_leases
    WHERE `key` = p_key AND slot = 0 AND id = p_id AND state = 'h' AND (p_token IS NULL OR token = p_token)
    FOR UPDATE SKIP LOCKED;
    SET n = {now};
    IF found = 1 THEN
        IF alone = 1 THEN
            CALL {schema}.leasehold_pass(highest, mark);
            DELETE FROM {schema}.leasehold_leases WHERE `key` = p_key AND slot = 0;
        ELSE
            UPDATE {schema}.leasehold_leases SET state = 'f' WHERE `key` = p_key AND slot = 0;
        END IF;
        COMMIT;
        SELECT IF(ends <= n, 'expired', 'released') AS outcome;
        LEAVE whole;
    END IF;
    COMMIT;
    CALL {schema}.leasehold_release(p_id, CONCAT('[["', HEX(p_key), '"]]'), NULL, p_token);
END
