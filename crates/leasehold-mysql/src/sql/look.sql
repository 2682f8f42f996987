-- In a session that does not commit by itself, what only reads must end its transaction too. The clock is read after a
-- wait for the table, which a look at it begins and the transaction keeps.

-- All records of these keys, and the server's clock. p_keys is an array of arrays that begin with a key in hexadecimal
-- digits.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_look_up(p_keys LONGTEXT)
SQL SECURITY INVOKER
BEGIN
    {reads}
    SELECT n AS o_now, lease.*
    FROM {rows} AND lease.state <> 'f'
    ORDER BY lease.`key`, lease.slot;
    COMMIT;
END
-- next
-- Records in the order of key and slot, after a position, and the server's clock.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_page(p_key VARBINARY(1024), p_slot INT, p_most INT)
SQL SECURITY INVOKER
BEGIN
    {reads}
    SELECT n AS o_now, lease.*
    FROM {schema}.leasehold_leases AS lease
    WHERE lease.`key` >= p_key AND (lease.`key` > p_key OR lease.slot > p_slot) AND lease.state NOT IN ('e', 'f')
    ORDER BY lease.`key`, lease.slot
    LIMIT p_most;
    COMMIT;
END
-- next
-- What may be purged among the next rows after a position, or of these keys; the last of these rows in any case. Whether
-- it is the last and more may follow, and whether its record is over.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_scan(
    p_key VARBINARY(1024),
    p_slot INT,
    p_keys LONGTEXT,
    p_most INT
)
SQL SECURITY INVOKER
BEGIN
    {reads}
    IF p_keys IS NULL THEN
        SELECT n AS o_now, page.* FROM (
            SELECT next_rows.*, nth = counted AND counted = p_most AS o_more
            FROM (
                SELECT lease.*, ROW_NUMBER() OVER (ORDER BY lease.`key`, lease.slot) AS nth, COUNT(*) OVER () AS counted,
                    lease.state <> 'f' AND COALESCE(lease.expires <= n, FALSE) AS o_over
                FROM (
                    SELECT * FROM {schema}.leasehold_leases
                    WHERE `key` >= p_key AND (`key` > p_key OR slot > p_slot)
                    ORDER BY `key`, slot
                    LIMIT p_most
                ) AS lease
            ) AS next_rows
        ) AS page
        WHERE o_more OR o_over
        ORDER BY `key`, slot;
    ELSE
        SELECT n AS o_now, lease.*, FALSE AS o_more, TRUE AS o_over
        FROM {rows}
        WHERE lease.state <> 'f' AND lease.expires <= n
        ORDER BY lease.`key`, lease.slot;
    END IF;
    COMMIT;
END
-- next
-- The server's clock, the version of the objects, what identifies this store, and what the server reports about
-- itself. A variable that it does not have is missing. Replicas: MariaDB counts them for everybody, MySQL lists them for
-- those with the privilege PROCESS: whether this user has it is reported too.
CREATE PROCEDURE IF NOT EXISTS {schema}.leasehold_health()
SQL SECURITY INVOKER
BEGIN
    SELECT {now} AS o_now, version AS o_version, identity AS o_identity, {replicas}
    FROM {schema}.leasehold_version;
    {settings};
    SHOW GLOBAL STATUS WHERE Variable_name = 'Slaves_connected';
    COMMIT;
END
