-- The current epoch.
SELECT epoch, boot_id, time_ns, time_offset_ns
FROM {prefix}boots
ORDER BY epoch DESC
LIMIT 1
