-- A key of schema version 1 with a token above this one: one mark for all keys would end them all.
SELECT key, counter FROM {prefix}keys WHERE counter > ?1
UNION ALL
SELECT key, token FROM {prefix}holders WHERE token > ?1
LIMIT 1
