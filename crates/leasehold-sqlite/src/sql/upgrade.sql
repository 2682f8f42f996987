-- From schema version 1, which kept a counter for each key. Programs of that version may have the file open and hold
-- leases. They read the counter of a key that they renew or release, and write one with each token that they mint or
-- raise: the column that they do not know has no default, so they can read and not write.

CREATE TABLE {prefix}mark (
    one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    mark INTEGER NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991)
) STRICT;

INSERT INTO {prefix}mark (one, mark)
SELECT 1, max(
    (SELECT coalesce(max(counter), 0) FROM {prefix}keys),
    (SELECT coalesce(max(token), 0) FROM {prefix}holders)
);

DROP INDEX {prefix}keys_by_counter;
ALTER TABLE {prefix}keys RENAME TO {prefix}keys_of_version_1;

CREATE TABLE {prefix}keys (
    key     TEXT    NOT NULL PRIMARY KEY,
    counter INTEGER NOT NULL,
    this_file_needs_a_newer_leasehold INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX {prefix}keys_by_counter ON {prefix}keys (counter);

INSERT INTO {prefix}keys (key, counter, this_file_needs_a_newer_leasehold)
SELECT key, counter, 1
FROM {prefix}keys_of_version_1
WHERE key IN (SELECT key FROM {prefix}holders);

DROP TABLE {prefix}keys_of_version_1;
