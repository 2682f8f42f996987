CREATE TABLE IF NOT EXISTS {table} (
    name      STRING(MAX) NOT NULL,
    heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp = true),
    token     TIMESTAMP OPTIONS (allow_commit_timestamp = true),
    writer    STRING(MAX),
) PRIMARY KEY (name)
