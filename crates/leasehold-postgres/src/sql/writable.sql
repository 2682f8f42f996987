-- Refuses a server that is read-only: one that was the primary answers reads, with what it knew then.
CREATE OR REPLACE FUNCTION {schema}.writable() RETURNS boolean
LANGUAGE plpgsql {safe} STABLE AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_read_only')::boolean THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'it answers reads only';
    END IF;
    RETURN true;
END
$$;
