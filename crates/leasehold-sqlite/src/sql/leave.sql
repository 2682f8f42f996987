-- Removes what programs of schema version 1 need of a key.
DELETE FROM {prefix}keys WHERE key = ?1
