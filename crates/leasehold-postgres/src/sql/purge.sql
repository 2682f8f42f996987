-- Removes these records if their terms are over. Returns the positions of what is gone.
CREATE OR REPLACE FUNCTION {schema}.purge(
    p_patience text,
    p_keys text[],
    p_ids bytea[],
    p_tokens bigint[]
) RETURNS SETOF integer
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    n bigint;
    locked text[];
BEGIN
    {guard}
    SELECT coalesce(array_agg(key), '{}') INTO locked
    FROM (
        SELECT key FROM {schema}.leases
        WHERE key = ANY (p_keys) AND slot = 0 ORDER BY key FOR UPDATE SKIP LOCKED
    ) AS free;
    n := {schema}.now_us();
    FOR i IN 1 .. cardinality(p_keys) LOOP
        UPDATE {schema}.leases SET id = NULL
        WHERE key = p_keys[i] AND key = ANY (locked) AND id = p_ids[i] AND token = p_tokens[i] AND expires <= n;
        IF FOUND THEN
            RETURN NEXT i;
        END IF;
    END LOOP;
    PERFORM {schema}.count_others(locked);
    -- Slots after the first that nobody uses.
    DELETE FROM {schema}.leases WHERE key = ANY (locked) AND slot > 0 AND id IS NULL;
    PERFORM {schema}.remove_free(locked);
    DELETE FROM {schema}.waiters WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.waiters WHERE until < n ORDER BY until LIMIT 100 FOR UPDATE SKIP LOCKED
    ));
END
$$;
