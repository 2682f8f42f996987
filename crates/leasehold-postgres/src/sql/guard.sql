IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the transaction is %', current_setting('transaction_isolation') USING ERRCODE = 'LH001';
    END IF;
    -- Until the end of the transaction: a SET of the function itself would end before the commit.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF p_patience IS NOT NULL THEN
        PERFORM set_config('lock_timeout', p_patience, true);
    END IF;
