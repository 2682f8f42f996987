DELETE FROM {table} WHERE resource = ?1 AND owner = ?2 AND expires_at = datetime(?3, 'unixepoch')
