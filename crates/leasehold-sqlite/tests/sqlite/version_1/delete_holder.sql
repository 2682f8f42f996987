DELETE FROM {prefix}holders WHERE key = ?1 AND id = ?2
