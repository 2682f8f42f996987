-- Extends exclusive leases, each of one key. No key occurs twice. A lease that is missing here may be held or not:
-- renew decides about it.
CREATE OR REPLACE FUNCTION {schema}.renew_batch(
    p_patience text,
    p_keys text[],
    p_ids bytea[],
    p_tos bigint[],
    p_tokens bigint[],
    p_raises bigint[]
) RETURNS TABLE (o_key text, o_rest bigint)
LANGUAGE plpgsql {safe} {indexed} AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(p_keys) = 0 THEN
        RETURN;
    END IF;
    {guard}
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT place, wanted.*, {schema}.now_us() AS n
        FROM unnest(p_keys, p_ids, p_tos, p_tokens, p_raises)
            AS wanted (name, held_id, until, with_token, raise_to),
        LATERAL (
            SELECT ctid AS place FROM {schema}.leases
            WHERE key = name AND slot = 0 AND id = held_id AND NOT shared AND state = 'h'
                AND (with_token IS NULL OR token = with_token)
                AND (raise_to IS NULL OR raise_to <= {most_raised})
            FOR UPDATE SKIP LOCKED
        ) AS row
    )
    UPDATE {schema}.leases AS lease
    SET expires = CASE WHEN expires IS NULL OR until IS NULL THEN NULL ELSE greatest(expires, n + until) END,
        renewed_at = n, token = greatest(token, raise_to), counter = greatest(counter, raise_to)
    -- C6: an ended lease is not revived.
    FROM held WHERE lease.ctid = place AND (expires IS NULL OR expires > n)
    RETURNING key, lease.expires - n;
END
$$;
