-- What a waiter sees of a key: whether somebody holds it alone, the mark unless somebody does, and its leases.
SELECT EXISTS (
           SELECT 1 FROM {prefix}holders WHERE key = ?1 AND mode = 'exclusive' AND state <> 'evicted'
       ),
       (SELECT mark FROM {prefix}mark WHERE one = 1 AND NOT EXISTS (
           SELECT 1 FROM {prefix}holders WHERE key = ?1 AND mode = 'exclusive' AND state <> 'evicted'
       )),
       (SELECT group_concat(hex(id)) FROM {prefix}holders WHERE key = ?1 AND state <> 'evicted')
