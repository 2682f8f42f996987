SELECT * FROM {schema}.release_one($1, $2, $3, $4, $5)
