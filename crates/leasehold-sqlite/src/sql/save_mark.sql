UPDATE {prefix}mark SET mark = ?1 WHERE one = 1
