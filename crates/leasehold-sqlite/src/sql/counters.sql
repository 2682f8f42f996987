-- Counters, the oldest first, after a position, and whether a record still stands on their key. The reader
-- stops at the first that may not be forgotten.
SELECT keys.key, keys.counter,
       EXISTS (SELECT 1 FROM {prefix}holders AS holders WHERE holders.key = keys.key)
FROM {prefix}keys AS keys INDEXED BY {prefix}keys_by_counter
WHERE (keys.counter, keys.key) > (?1, ?2)
ORDER BY keys.counter, keys.key
