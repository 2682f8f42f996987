-- Shows programs of schema version 1 that a key has a higher token than they know.
UPDATE {prefix}keys SET counter = 9007199254740991 WHERE key = ?1
