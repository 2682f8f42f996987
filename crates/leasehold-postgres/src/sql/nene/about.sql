-- What the check reads. Without the table the types are null. A trigger counts if its function has the search path of ours.
SELECT {now} AS o_now, pg_catalog.current_setting('server_version_num')::integer AS o_server,
    {settings},
    pg_catalog.current_setting('transaction_read_only')::boolean AS o_read_only,
    (SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger
     JOIN pg_catalog.pg_proc AS called ON called.oid OPERATOR(pg_catalog.=) tgfoid
     WHERE tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('{schema}."{table}"')
         AND tgname OPERATOR(pg_catalog.=) '{table}_guard'
         AND proconfig OPERATOR(pg_catalog.@>) '{"search_path=pg_catalog, pg_temp"}') AS o_guards,
    (SELECT pg_catalog.concat(system_identifier, '/', oid)
     FROM pg_catalog.pg_control_system(), pg_catalog.pg_database
     WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS o_place,
    (SELECT pg_catalog.array_agg(pg_catalog.format_type(atttypid, atttypmod)) FROM pg_catalog.pg_attribute
     WHERE attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('{schema}."{table}"')
         AND attname OPERATOR(pg_catalog.=) ANY ('{expires_at,acquired_at}')) AS o_types
