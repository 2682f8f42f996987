-- What the check reads, besides the server's settings. Without the table, or without a privilege on it, the types are
-- null.
SELECT {now} AS o_now, CONCAT(@@hostname, ':', @@port) AS o_place,
    (SELECT COUNT(*) FROM information_schema.TRIGGERS
     WHERE TRIGGER_SCHEMA = '{database}' AND TRIGGER_NAME = '{table}_guard') AS o_guards,
    {replicas},
    (SELECT COLLATION_NAME FROM information_schema.COLUMNS
     WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{table}' AND COLUMN_NAME = 'resource') AS o_collation,
    (SELECT GROUP_CONCAT(COLUMN_TYPE) FROM information_schema.COLUMNS
     WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{table}'
         AND COLUMN_NAME IN ('expires_at', 'acquired_at')) AS o_types
