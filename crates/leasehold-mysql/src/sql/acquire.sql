-- Takes all keys for one lease, or none. p_keys is an array of pairs, in the order of the keys: the key in hexadecimal
-- digits, and -1 for exclusive, 0 for shared, n for shared by at most n. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_acquire(
    p_id VARBINARY(255),
    p_keys LONGTEXT,
    p_term BIGINT,
    p_group VARBINARY(255),
    p_host VARBINARY(255),
    p_pid BIGINT,
    p_program VARBINARY(255),
    p_comment VARBINARY(512)
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, own_token, own_end, longest, new_token BIGINT;
    DECLARE wanted, held, tokens, lim, refused_by, place INT;
    DECLARE refused_slot INT;
    DECLARE this_key, refused_key, conflict VARBINARY(1024);
    DECLARE is_locked BOOLEAN;
    DECLARE is_refused, ends BOOLEAN DEFAULT FALSE;
    DECLARE i INT DEFAULT 0;
    DECLARE each_key CURSOR FOR
        SELECT UNHEX(w.k), w.l FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', l INT PATH '$[1]')) AS w ORDER BY w.nth;
    {rolls_back}
    {begins}
    {locks}
    SET n = {now}, wanted = JSON_LENGTH(p_keys);

    -- C3: this lease may be held already. C3b: what is left of a broken one goes.
    SELECT COUNT(*), COUNT(DISTINCT lease.token), MIN(lease.token), MIN(IF(lease.shared = (w.l >= 0), NULL, lease.`key`))
    INTO held, tokens, own_token, conflict
    FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', l INT PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY)
        ON lease.`key` = UNHEX(w.k) AND lease.id = p_id AND lease.state = 'h'
            AND (lease.expires IS NULL OR lease.expires > n);
    IF conflict IS NOT NULL THEN
        ROLLBACK;
        SELECT 'mode' AS outcome, conflict AS o_key;
        LEAVE whole;
    END IF;
    IF held = wanted AND tokens = 1 THEN
        UPDATE {own_rows} AND lease.id = p_id AND lease.state = 'h'
        SET lease.expires = IF(lease.expires IS NULL, NULL, GREATEST(lease.expires, n + p_term)), lease.renewed_at = n;
        SELECT MIN(lease.expires) INTO own_end
        FROM {rows} AND lease.id = p_id AND lease.state = 'h';
        COMMIT;
        SELECT 'confirmed' AS outcome, own_token AS o_token, own_end - n AS o_rest;
        LEAVE whole;
    END IF;
    IF held > 0 THEN
        CALL {schema}.leasehold_drop_held(p_keys, p_id, n, NULL);
    END IF;

    -- C9, C10: the first key that refuses, and when the whole request could be granted.
    OPEN each_key;
    WHILE i < wanted DO
        FETCH each_key INTO this_key, lim;
        SET refused_by = (
            SELECT slot FROM (
                SELECT lease.slot, lease.shared, lease.id = p_id AS own, COUNT(*) OVER () AS live,
                    ROW_NUMBER() OVER (ORDER BY lease.expires IS NULL, lease.expires, lease.token) AS nth
                FROM {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY)
                WHERE lease.`key` = this_key AND lease.state NOT IN ('e', 'f')
                    AND (lease.expires IS NULL OR lease.expires > n)
            ) AS holder
            WHERE lim = -1 OR shared IS NOT TRUE OR own OR (lim > 0 AND nth = live - lim + 1)
            ORDER BY nth DESC
            LIMIT 1
        );
        IF refused_by IS NOT NULL THEN
            SET own_end = (
                SELECT expires FROM {schema}.leasehold_leases WHERE `key` = this_key AND slot = refused_by
            );
            IF NOT is_refused THEN
                SET is_refused = TRUE, ends = TRUE, longest = 0, refused_key = this_key, refused_slot = refused_by;
            END IF;
            SET ends = ends AND own_end IS NOT NULL;
            SET longest = GREATEST(longest, COALESCE(own_end - n, 0));
        END IF;
        SET i = i + 1;
    END WHILE;
    CLOSE each_key;
    IF is_refused THEN
        CALL {schema}.leasehold_remove_free(p_keys);
        SELECT 'refused' AS outcome, IF(ends, longest, NULL) AS o_rest, n AS o_now, lease.*
        FROM {schema}.leasehold_leases AS lease WHERE lease.`key` = refused_key AND lease.slot = refused_slot;
        COMMIT;
        LEAVE whole;
    END IF;

    -- C7: one token for all keys, drawn now that they are won.
    {reads_mark}
    SELECT GREATEST({least_token}, MAX(lease.counter) + 1) INTO new_token
    FROM {rows} AND lease.slot = 0;
    IF new_token > 9007199254740991 THEN
        ROLLBACK;
        SELECT 'exhausted' AS outcome;
        LEAVE whole;
    END IF;
    -- C8: only what is over makes room, and what is left of this id.
    UPDATE {own_rows}
    SET lease.state = 'f'
    WHERE lease.state <> 'f' AND (lease.id = p_id OR lease.expires <= n);
    OPEN each_key;
    SET i = 0;
    WHILE i < wanted DO
        FETCH each_key INTO this_key, lim;
        SET place = (
            SELECT COALESCE(MIN(IF(state = 'f', slot, NULL)), MAX(slot) + 1)
            FROM {schema}.leasehold_leases FORCE INDEX (PRIMARY) WHERE `key` = this_key
        );
        INSERT INTO {schema}.leasehold_leases (
            `key`, slot, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
        )
        VALUES (
            this_key, place, p_id, lim >= 0, 'h', new_token, n + p_term, n, p_group, p_host, p_pid, p_program, p_comment
        )
        ON DUPLICATE KEY UPDATE
            id = VALUES(id), shared = VALUES(shared), state = VALUES(state), token = VALUES(token),
            expires = VALUES(expires), granted_at = VALUES(granted_at), renewed_at = NULL,
            group_name = VALUES(group_name), host = VALUES(host), pid = VALUES(pid), program = VALUES(program),
            comment = VALUES(comment), reason = NULL;
        UPDATE {schema}.leasehold_leases SET counter = new_token WHERE `key` = this_key AND slot = 0;
        SET i = i + 1;
    END WHILE;
    CLOSE each_key;
    CALL {schema}.leasehold_count_others(p_keys);
    COMMIT;
    SELECT 'granted' AS outcome, new_token AS o_token, p_term AS o_rest;
END
