-- The highest token of one key.
SELECT counter FROM {prefix}keys WHERE key = ?1
