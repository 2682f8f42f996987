-- Ends exactly the named records, and leaves a mark with the reason for their holders, for an hour at most. p_keys is an
-- array of arrays: key and id in hexadecimal digits, token. Returns which were there. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_evict(p_keys LONGTEXT, p_reason VARBINARY(255))
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, wanted_token, tell_until BIGINT;
    DECLARE wanted, at_slot, place INT;
    DECLARE this_key VARBINARY(1024);
    DECLARE wanted_id VARBINARY(255);
    DECLARE gone LONGTEXT DEFAULT '';
    DECLARE is_locked, is_live BOOLEAN;
    DECLARE i INT DEFAULT 0;
    DECLARE each_target CURSOR FOR
        SELECT UNHEX(w.k), UNHEX(w.i), w.o FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        ORDER BY w.nth;
    {rolls_back}
    {begins}
    {locks}
    SET n = {now}, wanted = JSON_LENGTH(p_keys);
    OPEN each_target;
    WHILE i < wanted DO
        SET i = i + 1;
        FETCH each_target INTO this_key, wanted_id, wanted_token;
        SET at_slot = (
            SELECT MIN(slot) FROM {schema}.leasehold_leases FORCE INDEX (PRIMARY)
            WHERE `key` = this_key AND id = wanted_id AND state NOT IN ('e', 'f')
                AND (wanted_token IS NULL OR token = wanted_token)
        );
        IF at_slot IS NOT NULL THEN
            SELECT state = 'h' AND (expires IS NULL OR expires > n), LEAST(COALESCE(expires, n + 3600000000), n + 3600000000)
            INTO is_live, tell_until
            FROM {schema}.leasehold_leases WHERE `key` = this_key AND slot = at_slot;
            IF is_live THEN
                -- Never in slot 0, where the next holder comes.
                SET place = (
                    SELECT COALESCE(MIN(IF(state = 'f' AND slot > 0, slot, NULL)), MAX(slot) + 1)
                    FROM {schema}.leasehold_leases FORCE INDEX (PRIMARY) WHERE `key` = this_key
                );
                INSERT INTO {schema}.leasehold_leases (
                    `key`, slot, id, shared, state, token, expires, granted_at, renewed_at, group_name, host, pid, program,
                    comment, reason
                )
                SELECT `key`, place, id, shared, 'e', token, tell_until, granted_at, renewed_at, group_name, host, pid,
                    program, comment, p_reason
                FROM (SELECT * FROM {schema}.leasehold_leases WHERE `key` = this_key AND slot = at_slot) AS lease
                ON DUPLICATE KEY UPDATE
                    id = VALUES(id), shared = VALUES(shared), state = VALUES(state), token = VALUES(token),
                    expires = VALUES(expires), granted_at = VALUES(granted_at), renewed_at = VALUES(renewed_at),
                    group_name = VALUES(group_name), host = VALUES(host), pid = VALUES(pid), program = VALUES(program),
                    comment = VALUES(comment), reason = VALUES(reason);
            END IF;
            UPDATE {schema}.leasehold_leases SET state = 'f' WHERE `key` = this_key AND slot = at_slot;
            SET gone = CONCAT(gone, ' ', i);
        END IF;
    END WHILE;
    CLOSE each_target;
    CALL {schema}.leasehold_count_others(p_keys);
    CALL {schema}.leasehold_remove_free(p_keys);
    COMMIT;
    SELECT 'done' AS outcome, gone AS o_gone;
END
