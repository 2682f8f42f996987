DELETE FROM {schema}.waiters WHERE listener = $2 AND key = ANY ($1)
