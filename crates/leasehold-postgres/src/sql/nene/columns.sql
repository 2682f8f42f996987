{now} AS o_now, pg_catalog.current_setting('transaction_read_only')::boolean AS o_read_only,
    pg_catalog.pg_is_in_recovery() AS o_standby,
    resource::pg_catalog.text AS o_resource, owner::pg_catalog.text AS o_owner,
    CASE WHEN pg_catalog.isfinite(expires_at) THEN extract(epoch FROM expires_at)::bigint END AS o_expires_at,
    CASE WHEN pg_catalog.isfinite(acquired_at) THEN extract(epoch FROM acquired_at)::bigint END AS o_acquired_at
