-- As renew, for an exclusive lease of one key, but it does not wait, as acquire_one.
CREATE OR REPLACE FUNCTION {schema}.renew_one(
    p_patience text,
    p_key text,
    p_id bytea,
    p_to bigint,
    p_token bigint,
    p_raise bigint,
    OUT outcome text,
    OUT o_rest bigint,
    OUT o_key text,
    OUT o_reason text,
    OUT o_most bigint
)
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    place tid;
    n bigint;
BEGIN
    {guard}
    SELECT ctid INTO place FROM {schema}.leases
    WHERE key = p_key AND slot = 0 AND id = p_id AND NOT shared AND state = 'h' AND (p_token IS NULL OR token = p_token)
        AND (p_raise IS NULL OR p_raise <= {most_raised})
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        -- C4: the row is locked by now. C6: an ended lease is not revived.
        n := {schema}.now_us();
        UPDATE {schema}.leases
        SET expires = CASE WHEN expires IS NULL OR p_to IS NULL THEN NULL ELSE greatest(expires, n + p_to) END,
            renewed_at = n, token = greatest(token, p_raise), counter = greatest(counter, p_raise)
        WHERE ctid = place AND (expires IS NULL OR expires > n)
        RETURNING expires - {schema}.now_us() INTO o_rest;
        IF FOUND THEN
            outcome := 'held';
            RETURN;
        END IF;
    END IF;
    {unlocked}
    SELECT * INTO outcome, o_rest, o_key, o_reason, o_most
    FROM {schema}.renew(p_patience, p_id, ARRAY[p_key], '{-1}', p_to, p_token, p_raise);
END
$$;
