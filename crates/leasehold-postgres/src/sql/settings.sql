ARRAY[
        pg_catalog.current_setting('fsync'),
        pg_catalog.current_setting('full_page_writes'),
        pg_catalog.current_setting('synchronous_standby_names'),
        pg_catalog.current_setting('transaction_read_only')
    ] AS o_settings,
    pg_catalog.pg_is_in_recovery() AS o_standby,
    -- Whether each standby confirms commits. Logical replication replaces no server.
    ARRAY(
        SELECT coalesce(sync_state, 'unknown') FROM pg_catalog.pg_stat_replication AS sender
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_replication_slots
            WHERE active_pid OPERATOR(pg_catalog.=) sender.pid AND slot_type OPERATOR(pg_catalog.=) 'logical'
        )
    ) AS o_replicas
