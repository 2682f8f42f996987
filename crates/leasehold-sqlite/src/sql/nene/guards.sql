-- Whether the table has our trigger.
SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name = '{table}_guard'
