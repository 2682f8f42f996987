-- How many of the five objects of schema.sql are there. SQLite compares names without regard to case.
SELECT count(*)
FROM sqlite_schema
WHERE lower(name) IN (
    lower('{prefix}boots'),
    lower('{prefix}keys'),
    lower('{prefix}keys_by_counter'),
    lower('{prefix}holders'),
    lower('{prefix}holders_by_expiry')
)
