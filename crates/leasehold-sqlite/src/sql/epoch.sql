-- The current epoch's number.
SELECT max(epoch) FROM {prefix}boots
