-- Takes keys that are free, each for an exclusive lease of its own. No key occurs twice. A key that is missing here is
-- not free, is being changed by somebody else or is new: acquire decides about it.
CREATE OR REPLACE FUNCTION {schema}.acquire_batch(
    p_patience text,
    p_keys text[],
    p_ids bytea[],
    p_terms bigint[],
    p_groups text[],
    p_hosts text[],
    p_pids bigint[],
    p_programs text[],
    p_comments text[]
) RETURNS TABLE (o_key text, o_token bigint, o_rest bigint)
LANGUAGE plpgsql {safe} {indexed} AS $$
#variable_conflict use_column
BEGIN
    {guard}
    RETURN QUERY
    WITH free AS MATERIALIZED (
        SELECT place, wanted.*, {schema}.now_us() AS n
        FROM unnest(p_keys, p_ids, p_terms, p_groups, p_hosts, p_pids, p_programs, p_comments)
            AS wanted (name, wanted_id, term, in_group, on_host, by_pid, by_program, with_comment),
        LATERAL (
            SELECT ctid AS place FROM {schema}.leases
            WHERE key = name AND slot = 0 AND others = 0 AND (id IS NULL OR expires <= {schema}.now_us())
                AND counter < 9007199254740991
            FOR UPDATE SKIP LOCKED
        ) AS row
    )
    UPDATE {schema}.leases AS lease
    SET counter = greatest(counter + 1, n), id = wanted_id, shared = false, state = 'h',
        token = greatest(counter + 1, n), expires = n + term, granted_at = n, renewed_at = NULL,
        group_name = in_group, host = on_host, pid = by_pid, program = by_program, comment = with_comment
    FROM free WHERE lease.ctid = place
    RETURNING key, lease.token, lease.expires - n;
END
$$;
