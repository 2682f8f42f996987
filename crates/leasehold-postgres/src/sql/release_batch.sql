-- Ends exclusive leases, each of one key. No key occurs twice. A lease that is missing here may be held or not: release
-- decides about it.
CREATE OR REPLACE FUNCTION {schema}.release_batch(
    p_patience text,
    p_keys text[],
    p_ids bytea[],
    p_tokens bigint[],
    p_wakes boolean[]
) RETURNS TABLE (o_key text, o_late boolean)
LANGUAGE plpgsql {safe} {indexed} AS $$
#variable_conflict use_column
DECLARE
    listened text[];
    places tid[];
    highest bigint;
BEGIN
    IF cardinality(p_keys) = 0 THEN
        RETURN;
    END IF;
    {guard}
    SELECT array_agg(place), max(counter) INTO places, highest
    FROM unnest(p_keys, p_ids, p_tokens) AS wanted (name, held_id, with_token),
    LATERAL (
        SELECT ctid AS place, counter FROM {schema}.leases
        WHERE key = name AND slot = 0 AND others = 0 AND {removable} AND id = held_id AND NOT shared AND state = 'h'
            AND (with_token IS NULL OR token = with_token)
        FOR UPDATE SKIP LOCKED
    ) AS row;
    IF places IS NOT NULL THEN
        PERFORM {schema}.pass(highest);
        RETURN QUERY
        DELETE FROM {schema}.leases AS lease USING unnest(places) AS place WHERE lease.ctid = place
        RETURNING key, coalesce(expires <= {schema}.now_us(), false);
    END IF;
    -- A key that was skipped may wake a waiter in vain.
    SELECT array_agg(name) INTO listened
    FROM unnest(p_keys, p_wakes) AS released (name, wakes)
    WHERE wakes AND EXISTS (SELECT FROM {schema}.waiters WHERE key = name OFFSET 0);
    IF listened IS NOT NULL THEN
        PERFORM {schema}.wake(listened);
    END IF;
END
$$;
