-- Removes what programs of schema version 1 need of keys that nobody holds any more.
DELETE FROM {prefix}keys WHERE key NOT IN (SELECT key FROM {prefix}holders)
