INSERT IGNORE INTO {schema}.leasehold_version (one, version, identity) VALUES (1, 1, UUID())
