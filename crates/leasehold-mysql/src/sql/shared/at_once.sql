/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
