-- Ends one lease on all its keys, or keeps them taken for p_keep longer.
CREATE OR REPLACE FUNCTION {schema}.release(
    p_patience text,
    p_id bytea,
    p_keys text[],
    p_keep bigint,
    p_token bigint,
    p_wakes boolean,
    OUT outcome text,
    OUT o_rest bigint
)
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    n bigint;
    held integer;
    expired integer;
    kept bigint;
BEGIN
    {guard}
    -- It waits for an acquire of this lease that is not over.
    {locks}
    n := {schema}.now_us();
    SELECT
        count(*) FILTER (WHERE state = 'h' AND (expires IS NULL OR expires > n)),
        count(*) FILTER (WHERE state = 'h' AND expires <= n),
        CASE WHEN count(*) FILTER (WHERE state = 'k' AND expires > n) = cardinality(p_keys) THEN min(expires) END
    INTO held, expired, kept
    FROM {schema}.leases
    WHERE key = ANY (p_keys) AND id = p_id AND (p_token IS NULL OR token = p_token);
    IF p_keep IS NOT NULL AND held = cardinality(p_keys) THEN
        UPDATE {schema}.leases SET state = 'k', expires = n + p_keep
        WHERE key = ANY (p_keys) AND id = p_id AND state = 'h';
        outcome := 'kept';
        o_rest := p_keep;
        RETURN;
    END IF;
    IF p_keep IS NOT NULL AND kept IS NOT NULL THEN
        outcome := 'kept';
        o_rest := kept - n;
        RETURN;
    END IF;
    IF held + expired > 0 THEN
        UPDATE {schema}.leases SET id = NULL
        WHERE key = ANY (p_keys) AND id = p_id AND state = 'h' AND (p_token IS NULL OR token = p_token);
        PERFORM {schema}.count_others(p_keys);
    END IF;
    PERFORM {schema}.remove_free(p_keys);
    IF held + expired > 0 THEN
        PERFORM {schema}.wake(p_keys) WHERE p_wakes;
    END IF;
    outcome := CASE
        WHEN held = cardinality(p_keys) THEN 'released'
        WHEN expired > 0 THEN 'expired'
        ELSE 'not held'
    END;
END
$$;
