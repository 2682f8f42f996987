SELECT * FROM {schema}.release($1, $2, $3, $4, $5, $6)
