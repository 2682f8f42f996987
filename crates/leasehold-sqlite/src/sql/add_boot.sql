-- Begins an epoch. AUTOINCREMENT never gives a number twice.
INSERT INTO {prefix}boots (boot_id, time_ns, time_offset_ns, first_seen)
VALUES (?1, ?2, ?3, ?4)
RETURNING epoch
