-- Takes keys that are free, each for an exclusive lease of its own. No key occurs twice. p_wanted is an array of arrays:
-- key and id in hexadecimal digits, term, group and comment in hexadecimal digits. Returns the keys that were
-- granted, or one row without a key if all were. A key that is missing there is not free, or is being changed by somebody
-- else: acquire decides about it.
-- p_batch is a number that occurs once.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_acquire_batch(
    p_batch BIGINT,
    p_wanted LONGTEXT,
    p_host VARBINARY(255),
    p_pid BIGINT,
    p_program VARBINARY(255)
)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, new_token BIGINT;
    DECLARE wanted, found, added INT DEFAULT 0;
    SELECT COUNT(*), COUNT(lease.slot) INTO wanted, found
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
    LEFT JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0;
    -- A term begins after a wait for the table.
    SET n = {now};
    -- No mark is this high, unless a token was raised, the clock stepped back, or a key was taken and released meanwhile.
    SET new_token = LEAST(n, 4503599627370496);
    BEGIN
        -- Another transaction is adding one of the keys: none is added then. No other statement may go on after such an error.
        DECLARE CONTINUE HANDLER FOR 1062, 1205 BEGIN
            IF @@innodb_rollback_on_timeout THEN
                RESIGNAL;
            END IF;
        END;
        -- If all are new, as most are, the table is not read again: what is read is buffered.
        IF found = 0 THEN
            {adds_wanted};
            SET added = ROW_COUNT();
        ELSEIF found < wanted THEN
            {adds_wanted}
            LEFT JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
            WHERE lease.`key` IS NULL;
            SET added = ROW_COUNT();
        END IF;
    END;
    IF added > 0 THEN
        -- C7: the keys are won by now. Somebody else may have taken and released one after the token was drawn.
        {reads_mark}
        IF mark >= new_token THEN
            CALL {schema}.leasehold_draw_again(p_batch, p_wanted, n, mark);
        ELSEIF added = wanted THEN
            SELECT NULL AS o_key, 'acquires' AS o_all, new_token AS o_token, {now} - n AS o_passed;
            LEAVE whole;
        END IF;
    END IF;
    IF added < wanted THEN
        SELECT COUNT(lease.slot) INTO found
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE lease.others = 0 AND (lease.state = 'f' OR lease.expires <= n)
        FOR UPDATE SKIP LOCKED;
        SET n = {now};
        UPDATE (
            SELECT lease.`key` AS name, UNHEX(w.i) AS new_id, GREATEST(lease.counter + 1, LEAST(n, 4503599627370496)) AS new_token, n + w.t AS ends,
                UNHEX(w.g) AS new_group, UNHEX(w.c) AS new_comment
            FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
                k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', t BIGINT PATH '$[2]', g VARCHAR(510) PATH '$[3]',
                c VARCHAR(1024) PATH '$[4]')) AS w
            STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
            WHERE lease.others = 0 AND (lease.state = 'f' OR lease.expires <= n) AND lease.counter < 9007199254740991
            LIMIT 1000000
            FOR UPDATE SKIP LOCKED
        ) AS free
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = free.name AND lease.slot = 0
        SET lease.batch = p_batch, lease.counter = free.new_token, lease.id = free.new_id, lease.shared = FALSE,
            lease.state = 'h', lease.token = free.new_token, lease.expires = free.ends, lease.granted_at = n,
            lease.renewed_at = NULL, lease.group_name = free.new_group, lease.host = p_host, lease.pid = p_pid,
            lease.program = p_program, lease.comment = free.new_comment;
    END IF;
    SELECT lease.`key` AS o_key, lease.token AS o_token, lease.expires - {now} AS o_rest
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.batch = p_batch AND lease.id = UNHEX(w.i);
END
-- next
-- Another token for the rows that a batch has added, because the mark has passed the one that it drew before: somebody
-- else has taken and released such a key since (C7). At the end of the tokens it removes the rows.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_draw_again(
    p_batch BIGINT,
    p_wanted LONGTEXT,
    n BIGINT,
    mark BIGINT
)
SQL SECURITY INVOKER
BEGIN
    DECLARE new_token BIGINT;
    SET new_token = {least_token};
    UPDATE {added_rows}
    SET lease.counter = new_token, lease.token = new_token
    WHERE lease.batch = p_batch;
    IF new_token > 9007199254740991 THEN
        DELETE lease FROM {added_rows}
        WHERE lease.batch = p_batch;
    END IF;
END
