INSERT INTO {table} (resource, owner, expires_at, acquired_at)
VALUES (?1, ?2, datetime(?3, 'unixepoch'), datetime(?4, 'unixepoch'))
ON CONFLICT (resource) DO NOTHING
