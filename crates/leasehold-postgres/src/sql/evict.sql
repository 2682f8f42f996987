-- Ends exactly the named records, and leaves a mark with the reason for their holders, for an hour at most. Returns which were there.
CREATE OR REPLACE FUNCTION {schema}.evict(
    p_patience text,
    p_keys text[],
    p_ids bytea[],
    p_tokens bigint[],
    p_reason text
) RETURNS SETOF integer
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    n bigint;
    lease {schema}.leases;
    tell_until bigint;
BEGIN
    {guard}
    PERFORM FROM {schema}.leases WHERE key = ANY (p_keys) AND slot = 0 ORDER BY key FOR UPDATE;
    n := {schema}.now_us();
    FOR i IN 1 .. cardinality(p_keys) LOOP
        SELECT * INTO lease FROM {schema}.leases
        WHERE key = p_keys[i] AND id = p_ids[i] AND state <> 'e' AND (p_tokens[i] IS NULL OR token = p_tokens[i]);
        CONTINUE WHEN NOT FOUND;
        UPDATE {schema}.leases SET id = NULL WHERE key = lease.key AND slot = lease.slot;
        IF lease.state = 'h' AND (lease.expires IS NULL OR lease.expires > n) THEN
            tell_until := least(lease.expires, n + 3600000000);
            -- Never in slot 0, where the next holder comes.
            INSERT INTO {schema}.leases (
                key, slot, id, shared, state, token, expires, granted_at, renewed_at, group_name, host, pid, program,
                comment, reason
            )
            SELECT
                lease.key, coalesce(min(slot) FILTER (WHERE id IS NULL), max(slot) + 1, 1), lease.id, lease.shared, 'e',
                lease.token, tell_until, lease.granted_at, lease.renewed_at, lease.group_name, lease.host, lease.pid,
                lease.program, lease.comment, p_reason
            FROM {schema}.leases WHERE key = lease.key AND slot > 0
            ON CONFLICT (key, slot) DO UPDATE SET
                id = excluded.id, shared = excluded.shared, state = excluded.state, token = excluded.token,
                expires = excluded.expires, granted_at = excluded.granted_at, renewed_at = excluded.renewed_at,
                group_name = excluded.group_name, host = excluded.host, pid = excluded.pid, program = excluded.program,
                comment = excluded.comment, reason = excluded.reason;
        END IF;
        RETURN NEXT i;
    END LOOP;
    PERFORM {schema}.count_others(p_keys);
    PERFORM {schema}.remove_free(p_keys);
    PERFORM {schema}.wake(p_keys);
END
$$;
