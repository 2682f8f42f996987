SELECT * FROM {schema}.evict($1, $2, $3, $4, $5)
