SELECT * FROM {schema}.release_batch($1, $2, $3, $4, $5)
