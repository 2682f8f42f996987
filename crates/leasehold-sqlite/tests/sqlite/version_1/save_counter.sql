INSERT INTO {prefix}keys (key, counter)
VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET counter = excluded.counter
