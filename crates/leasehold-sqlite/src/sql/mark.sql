-- The highest token of any key.
SELECT mark FROM {prefix}mark WHERE one = 1
