-- Everything that Leasehold keeps in MySQL and MariaDB: schema version 1. https://docs.rs/leasehold-mysql explains every column.
-- {schema} stands for the database of the URL, "leasehold" by default. Each statement can be run again.

-- The rows of a key are slots. Slot 0 exists as long as the key has a lease or a mark of an evicted one; every operation on
-- the key locks it first. A slot with the state f is free, and what it reports of a lease means nothing. An exclusive lease
-- is in slot 0. More than one shared lease, and the marks of evicted leases, take further slots, which are used again. All text is UTF-8 in binary columns, which no character set
-- or collation of a session changes.
CREATE TABLE IF NOT EXISTS {schema}.leasehold_leases (
    `key`      VARBINARY(1024) NOT NULL,
    slot       INT NOT NULL,
    counter    BIGINT NOT NULL DEFAULT 0,
    others     INT NOT NULL DEFAULT 0,
    batch      BIGINT,
    id         VARBINARY(255),
    shared     BOOLEAN,
    state      BINARY(1) NOT NULL DEFAULT 'f',
    token      BIGINT,
    expires    BIGINT,
    granted_at BIGINT,
    renewed_at BIGINT,
    group_name VARBINARY(255),
    host       VARBINARY(255),
    pid        BIGINT,
    program    VARBINARY(255),
    comment    VARBINARY(512),
    reason     VARBINARY(255),
    PRIMARY KEY (`key`, slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
-- next
-- The high-water mark of the tokens (C7) is the highest of these values: no row that was removed had a higher counter. A
-- transaction that removes rows changes a row here that no other one has locked, and adds one if there is none.
CREATE TABLE IF NOT EXISTS {schema}.leasehold_mark (
    shard INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE = InnoDB
-- next
-- The version of all objects, and what identifies this store: one row, written last.
CREATE TABLE IF NOT EXISTS {schema}.leasehold_version (
    one      TINYINT NOT NULL PRIMARY KEY,
    version  INT NOT NULL,
    identity BINARY(36) NOT NULL
) ENGINE = InnoDB
