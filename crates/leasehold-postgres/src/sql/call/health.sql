SELECT * FROM {schema}.health()
