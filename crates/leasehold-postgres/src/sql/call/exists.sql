-- Whether the schema is there, with our table of versions, and with any table of leases. Sees what others are creating
-- when they have done so.
SELECT
    EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) $1),
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS space ON space.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE nspname OPERATOR(pg_catalog.=) $1 AND relname OPERATOR(pg_catalog.=) 'version'
    ),
    EXISTS (
        SELECT FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS space ON space.oid OPERATOR(pg_catalog.=) class.relnamespace
        WHERE nspname OPERATOR(pg_catalog.=) $1 AND relname OPERATOR(pg_catalog.=) ANY ('{leases,waiters}')
    ),
    pg_catalog.current_setting('server_encoding')
