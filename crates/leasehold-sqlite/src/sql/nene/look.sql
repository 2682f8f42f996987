SELECT resource, owner, unixepoch(expires_at), unixepoch(acquired_at) FROM {table} WHERE resource = ?1
