-- What Store::check reports, in one exchange.
-- A function whose columns change cannot be replaced.
DROP FUNCTION IF EXISTS {schema}.health();
CREATE FUNCTION {schema}.health(
    OUT o_version integer,
    OUT o_functions integer,
    OUT o_now bigint,
    OUT o_server integer,
    OUT o_settings text[],
    OUT o_standby boolean,
    OUT o_replicas text[],
    OUT o_identity text,
    OUT o_missing text[]
)
LANGUAGE plpgsql {safe} AS $$
BEGIN
    SELECT max(version), max(functions) INTO o_version, o_functions FROM {schema}.version;
    o_now := {schema}.now_us();
    o_server := current_setting('server_version_num');
    o_settings := ARRAY[
        current_setting('fsync'),
        current_setting('full_page_writes'),
        current_setting('synchronous_standby_names'),
        current_setting('transaction_read_only')
    ];
    o_standby := pg_is_in_recovery();
    -- Whether each standby confirms commits. Logical replication replaces no server.
    SELECT coalesce(array_agg(coalesce(sync_state, 'unknown')), '{}') INTO o_replicas
    FROM pg_stat_replication AS sender
    WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE active_pid = sender.pid AND slot_type = 'logical');
    SELECT 'postgres:' || system_identifier || '/' || oid || '/{schema_text}' INTO o_identity
    FROM pg_control_system(), pg_database WHERE datname = current_database();
    SELECT array_agg(privilege || ' on ' || name) INTO o_missing
    FROM unnest(ARRAY['leases', 'waiters']) AS name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
    WHERE NOT has_table_privilege('{schema}.' || name, privilege);
END
$$;
