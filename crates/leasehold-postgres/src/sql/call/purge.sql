SELECT * FROM {schema}.purge($1, $2, $3, $4, $5, $6)
