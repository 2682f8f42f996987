-- Extends one lease on all its keys to at least p_to, or without end. p_limits as in acquire: only their sign counts.
CREATE OR REPLACE FUNCTION {schema}.renew(
    p_patience text,
    p_id bytea,
    p_keys text[],
    p_limits integer[],
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
    n bigint;
    one {schema}.leases;
    whole boolean := true;
BEGIN
    {guard}
    PERFORM FROM {schema}.leases WHERE key = ANY (p_keys) AND (slot = 0 OR id = p_id) ORDER BY key, slot FOR UPDATE;
    n := {schema}.now_us();
    FOR i IN 1 .. cardinality(p_keys) LOOP
        SELECT * INTO one FROM {schema}.leases
        WHERE key = p_keys[i] AND id = p_id AND state = 'h' AND (expires IS NULL OR expires > n)
            AND (p_token IS NULL OR token = p_token);
        IF NOT FOUND THEN
            whole := false;
        ELSIF one.shared <> (p_limits[i] >= 0) THEN
            outcome := 'mode';
            o_key := p_keys[i];
            RETURN;
        END IF;
    END LOOP;
    IF whole AND p_raise > {most_raised} THEN
        outcome := 'raise';
        o_most := {most_raised};
        RETURN;
    END IF;
    IF whole THEN
        UPDATE {schema}.leases
        SET expires = CASE WHEN expires IS NULL OR p_to IS NULL THEN NULL ELSE greatest(expires, n + p_to) END,
            renewed_at = n, token = greatest(token, p_raise)
        WHERE key = ANY (p_keys) AND id = p_id AND state = 'h';
        UPDATE {schema}.leases SET counter = greatest(counter, p_raise)
        WHERE key = ANY (p_keys) AND slot = 0 AND p_raise > counter;
        SELECT min(expires) - {schema}.now_us() INTO o_rest FROM {schema}.leases
        WHERE key = ANY (p_keys) AND id = p_id AND state = 'h';
        outcome := 'held';
        RETURN;
    END IF;
    -- C3b: a lease that has lost a key has lost all of them.
    outcome := 'gone';
    FOR one IN
        SELECT * FROM {schema}.leases
        WHERE key = ANY (p_keys) AND id = p_id AND (p_token IS NULL OR token = p_token)
        ORDER BY key
    LOOP
        IF one.state = 'e' THEN
            outcome := 'evicted';
            o_reason := one.reason;
            EXIT;
        ELSIF one.state = 'h' AND one.expires <= n THEN
            outcome := 'expired';
        END IF;
    END LOOP;
    PERFORM {schema}.drop_held(p_keys, p_id, n, p_token);
    PERFORM {schema}.remove_free(p_keys);
END
$$;
