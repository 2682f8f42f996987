-- Every join and every search of the rows of a key names the index: in a small table the server would rather read all
-- rows, and wait for those of other keys that somebody has locked. A range of slots would end at the first row of the next
-- key, and wait for that: such a condition uses no index (slot + 0).

-- How many slots after the first have a lease or a mark: with none, slot 0 alone decides about the key, and is its only
-- row. p_keys is an array of arrays that begin with a key in hexadecimal digits.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_count_others(p_keys LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    UPDATE (
        SELECT lease.`key` AS name,
            -- An eviction may name a key twice.
            COUNT(DISTINCT IF(lease.slot > 0 AND lease.state <> 'f', lease.slot, NULL)) AS counted
        FROM {rows}
        GROUP BY lease.`key`
    ) AS now_there
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = now_there.name AND lease.slot = 0
    SET lease.others = now_there.counted
    WHERE lease.others <> now_there.counted;
    DELETE lease FROM (
        SELECT first.`key` AS name
        FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
        STRAIGHT_JOIN {schema}.leasehold_leases AS first FORCE INDEX (PRIMARY) ON first.`key` = UNHEX(w.k) AND first.slot = 0
        WHERE first.others = 0
        LIMIT 1000000
    ) AS own
    STRAIGHT_JOIN {schema}.leasehold_leases AS lease FORCE INDEX (PRIMARY) ON lease.`key` = own.name
    WHERE lease.slot + 0 > 0 AND lease.state = 'f';
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
-- Locks the first slots of keys, adds those that are missing, and returns whether another transaction has one of them. If it is
-- adding one, this fails, on MariaDB at once. Inside a transaction.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_lock(p_keys LONGTEXT, OUT p_is_locked BOOLEAN)
SQL SECURITY INVOKER
BEGIN
    DECLARE wanted, found INT;
    SET wanted = JSON_LENGTH(p_keys);
    SELECT COUNT(lease.slot) INTO found
    FROM {rows} AND lease.slot = 0;
    IF found < wanted THEN
        -- An eviction may name a key twice.
        {at_once}
        INSERT INTO {schema}.leasehold_leases (`key`, slot)
        SELECT DISTINCT UNHEX(w.k), 0
        FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (k VARCHAR(2048) PATH '$[0]')) AS w
        WHERE NOT EXISTS (
            SELECT 1 FROM {schema}.leasehold_leases AS lease WHERE lease.`key` = UNHEX(w.k) AND lease.slot = 0
        );
    END IF;
    SELECT COUNT(lease.slot) INTO found
    FROM {rows} AND lease.slot = 0
    FOR UPDATE SKIP LOCKED;
    SET p_is_locked = found < wanted;
END
-- next
-- Raises the high-water mark, which the caller has read, to at least this, in the transaction that removes the rows. Nobody
-- waits for it, for each transaction at a time has a row of its own. Whoever adds a row again reads the mark after that, when
-- the removal is committed.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_pass(p_token BIGINT, p_mark BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE own INT UNSIGNED;
    IF p_mark < p_token THEN
        SELECT shard INTO own FROM {schema}.leasehold_mark LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF own IS NULL THEN
            INSERT INTO {schema}.leasehold_mark (value) VALUES (p_token);
        ELSE
            UPDATE {schema}.leasehold_mark SET value = GREATEST(value, p_token) WHERE shard = own;
        END IF;
    END IF;
END
-- next
-- Removes the rows of those of the keys that have neither a lease nor a mark of an evicted one. Their slots 0 are locked. A
-- counter that is damaged stays, so that it ends no other key.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_remove_free(p_keys LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    DECLARE mark, highest, most BIGINT;
    {reads_mark}
    SET most = {most_removed};
    SELECT MAX(lease.counter) INTO highest
    FROM {rows} AND lease.slot = 0
    WHERE lease.state = 'f' AND lease.others = 0 AND lease.counter <= most;
    IF highest IS NOT NULL THEN
        CALL {schema}.leasehold_pass(highest, mark);
        DELETE lease FROM {own_rows} AND lease.slot = 0
        WHERE lease.state = 'f' AND lease.others = 0 AND lease.counter <= most;
    END IF;
END
