-- Everything that Leasehold keeps in a SQLite file: schema version 2 (PRAGMA user_version = 2) under the
-- application id 0x4c736864, "Lshd". docs/stores/sqlite.md explains every column.
-- {prefix} stands for the option prefix, "leasehold_" by default.

-- One row per start of the machine (or time namespace) under which the file was used; the last is current.
-- Instants of holders.expires are comparable only within one epoch.
CREATE TABLE IF NOT EXISTS {prefix}boots (
    epoch          INTEGER PRIMARY KEY AUTOINCREMENT,
    boot_id        TEXT    NOT NULL,
    time_ns        INTEGER NOT NULL,
    time_offset_ns INTEGER NOT NULL,
    first_seen     INTEGER NOT NULL
) STRICT;

-- One row: the highest token of any key, which outlives every lease. Nothing is kept of a key without one.
CREATE TABLE IF NOT EXISTS {prefix}mark (
    one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    mark INTEGER NOT NULL CHECK (mark BETWEEN 0 AND 9007199254740991)
) STRICT;

INSERT OR IGNORE INTO {prefix}mark (one, mark) VALUES (1, 0);

-- One row per lease and key.
CREATE TABLE IF NOT EXISTS {prefix}holders (
    key        TEXT    NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024),
    id         BLOB    NOT NULL CHECK (length(id) BETWEEN 1 AND 255),
    mode       TEXT    NOT NULL CHECK (mode IN ('exclusive', 'shared')),
    state      TEXT    NOT NULL CHECK (state IN ('held', 'kept', 'evicted')),
    token      INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    epoch      INTEGER NOT NULL,
    expires    INTEGER          CHECK (expires >= 0),
    granted_at INTEGER NOT NULL CHECK (granted_at >= 0),
    renewed_at INTEGER          CHECK (renewed_at >= 0),
    group_name      TEXT,
    host       TEXT,
    pid        INTEGER          CHECK (pid BETWEEN 0 AND 4294967295),
    program    TEXT,
    comment    TEXT,
    reason     TEXT             CHECK (reason IS NULL OR state = 'evicted'),
    PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;

-- Finds records that are over without a look at the live ones.
CREATE INDEX IF NOT EXISTS {prefix}holders_by_expiry ON {prefix}holders (epoch, expires)
    WHERE expires IS NOT NULL;
