DELETE FROM {schema}.waiters WHERE listener OPERATOR(pg_catalog.=) $2 AND key OPERATOR(pg_catalog.=) ANY ($1)
