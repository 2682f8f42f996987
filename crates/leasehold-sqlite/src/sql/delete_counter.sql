DELETE FROM {prefix}keys WHERE key = ?1
