-- Which objects of this and of the last schema are there: tables and indexes of both, of this one alone, of the last one
-- alone. SQLite compares names without regard to case.
SELECT
    count(*) FILTER (WHERE lower(name) IN (
        lower('{prefix}boots'),
        lower('{prefix}holders'),
        lower('{prefix}holders_by_expiry')
    )),
    count(*) FILTER (WHERE lower(name) = lower('{prefix}mark')),
    count(*) FILTER (WHERE lower(name) IN (lower('{prefix}keys'), lower('{prefix}keys_by_counter')))
FROM sqlite_schema
