DECLARE n BIGINT;
{writable}
START TRANSACTION;
DO (SELECT COUNT(*) FROM {schema}.leasehold_leases WHERE `key` = '' AND slot = 0);
SET n = {now};
