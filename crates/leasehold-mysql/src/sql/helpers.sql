-- Every join and every search of the rows of a key names the index: in a small table the server would rather read all
-- rows, and wait for those of other keys that somebody has locked. A range of slots would end at the first row of the next
-- key, and wait for that: such a condition uses no index (slot + 0).

-- How many slots after the first have a lease or a mark: with none, slot 0 alone decides about the key. p_keys is an
-- array of arrays that begin with a key in hexadecimal digits.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_count_others(p_keys LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    UPDATE (
        SELECT lease.`key` AS name, COUNT(IF(lease.slot > 0 AND lease.state <> 'f', 1, NULL)) AS counted
        FROM {rows}
        GROUP BY lease.`key`
    ) AS now_there
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = now_there.name AND lease.slot = 0
    SET lease.others = now_there.counted
    WHERE lease.others <> now_there.counted;
END
-- next
-- Drops the live records of a lease, with this token if one is given.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_drop_held(
    p_keys LONGTEXT,
    p_id VARBINARY(255),
    p_now BIGINT,
    p_token BIGINT
)
SQL SECURITY INVOKER
BEGIN
    UPDATE {own_rows} AND lease.id = p_id
    SET lease.state = 'f'
    WHERE lease.state = 'h' AND (lease.expires IS NULL OR lease.expires > p_now)
        AND (p_token IS NULL OR lease.token = p_token);
    CALL {schema}.leasehold_count_others(p_keys);
END
-- next
-- Locks the first slots of keys, and returns whether another transaction has one of them. Inside a transaction.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_lock(p_keys LONGTEXT, OUT p_is_locked BOOLEAN)
SQL SECURITY INVOKER
BEGIN
    DECLARE ours, existing INT;
    SELECT COUNT(lease.slot) INTO ours
    FROM {rows} AND lease.slot = 0
    FOR UPDATE SKIP LOCKED;
    SELECT COUNT(lease.slot) INTO existing
    FROM {rows} AND lease.slot = 0;
    SET p_is_locked = ours < existing;
END
