-- Which objects of this and of the last schema are there: tables and indexes of both, of this one alone, of the last one
-- alone, and of those the ones that an upgrade left. SQLite compares names without regard to case.
SELECT
    count(*) FILTER (WHERE lower(name) IN (
        lower('{prefix}boots'),
        lower('{prefix}holders'),
        lower('{prefix}holders_by_expiry')
    )),
    count(*) FILTER (WHERE lower(name) = lower('{prefix}mark')),
    count(*) FILTER (WHERE lower(name) IN (lower('{prefix}keys'), lower('{prefix}keys_by_counter'))),
    count(*) FILTER (WHERE lower(name) = lower('{prefix}keys') AND sql LIKE '%this_file_needs_a_newer_leasehold%')
FROM sqlite_schema
