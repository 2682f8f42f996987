-- Takes keys that are free, each for an exclusive lease of its own. No key occurs twice. p_wanted is an array of arrays:
-- key and id in hexadecimal digits, term, group and comment in hexadecimal digits. Returns the keys that were
-- granted. A key that is missing there is not free, is being changed by somebody else or is new: acquire decides
-- about it. p_batch is a number that occurs once.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_acquire_batch(
    p_batch BIGINT,
    p_wanted LONGTEXT,
    p_host VARBINARY(255),
    p_pid BIGINT,
    p_program VARBINARY(255)
)
SQL SECURITY INVOKER
BEGIN
    DECLARE n BIGINT;
    DECLARE found INT;
    {rolls_back}
    {begins}
    -- Before the locks, it can only refuse; a term begins after a wait for the table.
    SET n = {now};
    SELECT COUNT(lease.slot) INTO found
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.others = 0 AND (lease.state = 'f' OR lease.expires <= n)
    FOR UPDATE SKIP LOCKED;
    SET n = {now};
    UPDATE (
        SELECT lease.`key` AS name, UNHEX(w.i) AS new_id, GREATEST(lease.counter + 1, n) AS new_token, n + w.t AS ends,
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
    SELECT lease.`key` AS o_key, lease.token AS o_token, lease.expires - n AS o_rest
    FROM JSON_TABLE(p_wanted, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]', i VARCHAR(510) PATH '$[1]')) AS w
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = UNHEX(w.k) AND lease.slot = 0
    WHERE lease.batch = p_batch AND lease.id = UNHEX(w.i);
    COMMIT;
END
