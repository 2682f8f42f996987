-- Shows programs of schema version 1 the highest token of a key: they refuse a key with a token above its counter.
UPDATE {prefix}keys SET counter = (SELECT max(token) FROM {prefix}holders WHERE key = ?1) WHERE key = ?1
