-- Ends exclusive leases, each of one key. No key occurs twice. p_wanted is an array of arrays: key and id in hexadecimal
-- digits, token. p_highest is the highest of the tokens, or null if one is not known. Returns the keys that were released,
-- or one row without a key if all were in time. A lease that is missing there may be held or not: release decides about it.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release_batch(p_wanted LONGTEXT, p_highest BIGINT)
SQL SECURITY INVOKER
whole: BEGIN
    DECLARE n, mark, highest, most, ends BIGINT;
    DECLARE found, gone INT DEFAULT 0;
    -- Which rows this transaction has locked, as ',1,2,'; null for all.
    DECLARE places LONGTEXT;
    -- If all are held and in time, as most are, nothing is read before. MySQL would wait for a row that is locked.
    /*M!100600
    SET n = {now};
    -- No counter is higher, unless a token was raised or the clock stepped back.
    SET highest = LEAST(COALESCE(p_highest, n), 4503599627370496);
    SAVEPOINT nothing_deleted;
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1205 BEGIN
            IF @@innodb_rollback_on_timeout THEN
                RESIGNAL;
            END IF;
        END;
        SET STATEMENT innodb_lock_wait_timeout = 0 FOR
        DELETE lease
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
            k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        {joins_released} AND lease.counter <= highest AND (lease.expires IS NULL OR lease.expires > n);
        SET gone = ROW_COUNT();
    END;
    -- A wait for the table may have lasted.
    IF gone = JSON_LENGTH(p_wanted) AND {now} < n + 1000000 THEN
        CALL {schema}.leasehold_pass(highest, 0);
        SELECT NULL AS o_key, 'releases' AS o_all, FALSE AS o_late;
        LEAVE whole;
    END IF;
    ROLLBACK TO nothing_deleted;
    */
    {reads_mark}
    SET most = {most_removed};
    SELECT MAX(lease.counter), MIN(lease.expires), COUNT(*) INTO highest, ends, found
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
        k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
    {joins_released} AND lease.counter <= most
    FOR UPDATE SKIP LOCKED;
    SET n = {now};
    IF found < JSON_LENGTH(p_wanted) OR ends <= n THEN
        /*M!100600 SET STATEMENT group_concat_max_len = 1000000 FOR */
        SELECT MAX(lease.counter), REPLACE(REPLACE(REPLACE(JSON_ARRAYAGG(w.nth), '[', ','), ']', ','), ' ', '')
        INTO highest, places
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        {joins_released} AND lease.counter <= most
        FOR UPDATE SKIP LOCKED;
        SELECT lease.`key` AS o_key, COALESCE(lease.expires <= n, FALSE) AS o_late
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE INSTR(places, CONCAT(',', w.nth, ','));
    ELSE
        SELECT NULL AS o_key, 'releases' AS o_all, FALSE AS o_late;
    END IF;
    IF highest IS NOT NULL THEN
        CALL {schema}.leasehold_pass(highest, mark);
        DELETE lease
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE places IS NULL OR INSTR(places, CONCAT(',', w.nth, ','));
    END IF;
END
