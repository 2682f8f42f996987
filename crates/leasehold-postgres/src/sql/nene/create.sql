CREATE TABLE IF NOT EXISTS {schema}."{table}" (
    resource    varchar(255) COLLATE "C" NOT NULL PRIMARY KEY,
    owner       varchar(255) COLLATE "C" NOT NULL,
    expires_at  timestamp(0) NOT NULL,
    acquired_at timestamp(0) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')
);
