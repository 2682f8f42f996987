pg_catalog.set_config('synchronous_commit',
        CASE WHEN pg_catalog.current_setting('synchronous_commit')
            OPERATOR(pg_catalog.=) 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) IS NOT NULL
