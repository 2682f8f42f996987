PERFORM FROM {schema}.leases WHERE key = p_key AND slot = 0 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM {schema}.leases WHERE key = p_key AND slot = 0) THEN
        outcome := 'locked';
        RETURN;
    END IF;
