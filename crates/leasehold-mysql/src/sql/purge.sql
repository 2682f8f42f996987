-- Removes these records if their terms are over, and forgets these counters if they are unchanged and their keys have no
-- record. p_over is an array of arrays: key and id in hexadecimal digits, token; p_counted: key, counter. Returns the
-- positions of what is gone: of records as they are, of counters below zero. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_purge(p_over LONGTEXT, p_counted LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE n, known BIGINT;
    DECLARE wanted, at_slot INT;
    DECLARE this_key VARBINARY(1024);
    DECLARE wanted_id VARBINARY(255);
    DECLARE gone LONGTEXT DEFAULT '';
    DECLARE i INT DEFAULT 0;
    DECLARE each_record CURSOR FOR
        SELECT UNHEX(w.k), UNHEX(w.i), w.o FROM JSON_TABLE(p_over, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        ORDER BY w.nth;
    DECLARE each_counter CURSOR FOR
        SELECT UNHEX(w.k), w.c FROM JSON_TABLE(p_counted, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', c BIGINT PATH '$[1]')) AS w
        ORDER BY w.nth;
    {rolls_back}
    {begins}
    OPEN each_record;
    SET n = {now}, wanted = JSON_LENGTH(p_over);
    WHILE i < wanted DO
        SET i = i + 1;
        FETCH each_record INTO this_key, wanted_id, known;
        SELECT COUNT(*) INTO at_slot FROM {schema}.leasehold_leases
        WHERE `key` = this_key AND slot = 0 FOR UPDATE SKIP LOCKED;
        IF at_slot = 1 THEN
            SET at_slot = (
                SELECT MIN(slot) FROM {schema}.leasehold_leases FORCE INDEX (PRIMARY)
                WHERE `key` = this_key AND id = wanted_id AND state <> 'f' AND token = known AND expires <= n
            );
            IF at_slot IS NOT NULL THEN
                UPDATE {schema}.leasehold_leases SET state = 'f' WHERE `key` = this_key AND slot = at_slot;
                -- Slots after the first that nobody uses.
                DELETE lease FROM {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY)
                WHERE lease.`key` = this_key AND lease.slot + 0 > 0 AND lease.state = 'f';
                UPDATE {schema}.leasehold_leases SET others = others - (at_slot > 0) WHERE `key` = this_key AND slot = 0;
                SET gone = CONCAT(gone, ' ', i);
            END IF;
        END IF;
    END WHILE;
    CLOSE each_record;
    OPEN each_counter;
    SET i = 0, wanted = JSON_LENGTH(p_counted);
    WHILE i < wanted DO
        SET i = i + 1;
        FETCH each_counter INTO this_key, known;
        SELECT COUNT(*) INTO at_slot FROM {schema}.leasehold_leases
        WHERE `key` = this_key AND slot = 0 AND state = 'f' AND counter = known FOR UPDATE SKIP LOCKED;
        IF at_slot = 1 AND NOT EXISTS (
            SELECT 1 FROM {schema}.leasehold_leases FORCE INDEX (PRIMARY)
            WHERE `key` = this_key AND slot + 0 > 0 AND state <> 'f'
        ) THEN
            DELETE lease FROM {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) WHERE lease.`key` = this_key;
            SET gone = CONCAT(gone, ' -', i);
        END IF;
    END WHILE;
    CLOSE each_counter;
    COMMIT;
    SELECT 'done' AS outcome, gone AS o_gone;
END
