-- Removes these records if their terms are over. p_over is an array of arrays: key and id in hexadecimal digits, token.
-- Returns the positions of what is gone. It waits for no row.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_purge(p_over LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE n, mark, known, highest, most BIGINT;
    DECLARE wanted, at_slot INT;
    DECLARE this_key VARBINARY(1024);
    DECLARE wanted_id VARBINARY(255);
    DECLARE gone LONGTEXT DEFAULT '';
    DECLARE i INT DEFAULT 0;
    DECLARE each_record CURSOR FOR
        SELECT UNHEX(w.k), UNHEX(w.i), w.o FROM JSON_TABLE(p_over, '$[*]' COLUMNS (
            nth FOR ORDINALITY, k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]', o BIGINT PATH '$[2]')) AS w
        ORDER BY w.nth;
    {rolls_back}
    {begins}
    {reads_mark}
    OPEN each_record;
    SET n = {now}, wanted = JSON_LENGTH(p_over), most = {most_removed};
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
                SELECT MAX(counter) INTO highest FROM {schema}.leasehold_leases
                WHERE `key` = this_key AND slot = 0 AND state = 'f' AND others = 0 AND counter <= most;
                IF highest IS NOT NULL THEN
                    CALL {schema}.leasehold_pass(highest, mark);
                    DELETE FROM {schema}.leasehold_leases WHERE `key` = this_key AND slot = 0;
                END IF;
                SET gone = CONCAT(gone, ' ', i);
            END IF;
        END IF;
    END WHILE;
    CLOSE each_record;
    COMMIT;
    SELECT 'done' AS outcome, gone AS o_gone;
END
