-- A batch, each part in its turn: acquires may wait, and no row is locked before.
SELECT o_key, o_token, o_rest, NULL::pg_catalog.bool AS o_late FROM {schema}.acquire_batch($1, $2, $3, $4, $5, $6, $7, $8, $9)
UNION ALL
SELECT o_key, NULL, o_rest, NULL::pg_catalog.bool FROM {schema}.renew_batch($1, $10, $11, $12, $13, $14)
UNION ALL
SELECT o_key, NULL, NULL, o_late FROM {schema}.release_batch($1, $15, $16, $17, $18)
