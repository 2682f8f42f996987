SELECT * FROM {schema}.renew_one($1, $2, $3, $4, $5, $6)
