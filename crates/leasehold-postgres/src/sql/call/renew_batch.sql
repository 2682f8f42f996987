SELECT * FROM {schema}.renew_batch($1, $2, $3, $4, $5, $6)
