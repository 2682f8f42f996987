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
    SELECT {settings} INTO o_settings, o_standby, o_replicas;
    SELECT 'postgres:' || system_identifier || '/' || oid || '/{schema_text}' INTO o_identity
    FROM pg_control_system(), pg_database WHERE datname = current_database();
    SELECT array_agg(privilege || ' on ' || name) INTO o_missing
    FROM (
        SELECT name, privilege
        FROM unnest(ARRAY['leases', 'waiters']) AS name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
        UNION ALL
        SELECT 'mark', unnest(ARRAY['SELECT', 'UPDATE'])
    ) AS wanted
    WHERE NOT has_table_privilege('{schema}.' || name, privilege);
END
$$;
