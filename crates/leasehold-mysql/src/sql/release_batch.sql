-- Ends exclusive leases, each of one key. No key occurs twice. p_wanted is an array of arrays: key and id in hexadecimal
-- digits, token. A lease that is missing in the reply may be held or not: release decides about it.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_release_batch(p_wanted LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE n, mark, highest, most BIGINT;
    -- Which rows this transaction has locked, as ',1,2,'.
    DECLARE places LONGTEXT;
    {reads_mark}
    SET most = {most_removed};
    /*M!100600 SET STATEMENT group_concat_max_len = 1000000 FOR */
    SELECT MAX(lease.counter), REPLACE(REPLACE(REPLACE(JSON_ARRAYAGG(w.nth), '[', ','), ']', ','), ' ', '')
    INTO highest, places
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (
        nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.id = UNHEX(w.i) AND NOT lease.shared AND lease.state = 'h' AND (w.o IS NULL OR lease.token = w.o)
        AND lease.others = 0 AND lease.counter <= most
    FOR UPDATE SKIP LOCKED;
    SET n = {now};
    IF highest IS NOT NULL THEN
        SELECT lease.`key` AS o_key, COALESCE(lease.expires <= n, FALSE) AS o_late
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE INSTR(places, CONCAT(',', w.nth, ','));
        CALL {schema}.leasehold_pass(highest);
        DELETE lease
        FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
        WHERE INSTR(places, CONCAT(',', w.nth, ','));
    END IF;
END
