SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'version', 'read_only', 'super_read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit',
    'innodb_doublewrite', 'log_bin', 'sync_binlog', 'wsrep_on', 'group_replication_group_name'
)
