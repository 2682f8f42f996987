-- What a waiter sees of a key: whether somebody holds it alone, its counter, and its leases.
SELECT EXISTS (
           SELECT 1 FROM {prefix}holders WHERE key = ?1 AND mode = 'exclusive' AND state <> 'evicted'
       ),
       (SELECT counter FROM {prefix}keys WHERE key = ?1),
       (SELECT group_concat(hex(id)) FROM {prefix}holders WHERE key = ?1 AND state <> 'evicted')
