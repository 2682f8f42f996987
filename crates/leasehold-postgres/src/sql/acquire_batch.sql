-- Takes keys that are free, each for an exclusive lease of its own. No key occurs twice, and they are in their order. A key that is
-- missing here is not free, or is being changed by somebody else: acquire decides about it. It waits only for another transaction
-- that takes the same free key, and only before it has locked a row.
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
DECLARE
    n bigint;
    new_token bigint;
    new_keys text[];
    new_ends bigint[];
BEGIN
    IF cardinality(p_keys) = 0 THEN
        RETURN;
    END IF;
    {guard}
    n := {schema}.now_us();
    new_token := {least_token};
    BEGIN
        WITH made AS (
            INSERT INTO {schema}.leases (
                key, slot, counter, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
            )
            SELECT name, 0, new_token, wanted_id, false, 'h', new_token, n + term, n, in_group, on_host, by_pid, by_program,
                with_comment
            FROM unnest(p_keys, p_ids, p_terms, p_groups, p_hosts, p_pids, p_programs, p_comments)
                AS wanted (name, wanted_id, term, in_group, on_host, by_pid, by_program, with_comment)
            -- A row that is there may be locked.
            WHERE NOT EXISTS (SELECT FROM {schema}.leases WHERE key = name AND slot = 0 OFFSET 0)
            ON CONFLICT DO NOTHING
            RETURNING key, expires
        )
        SELECT array_agg(key), array_agg(expires) INTO new_keys, new_ends FROM made;
    EXCEPTION WHEN lock_not_available THEN
        -- No new key is taken then. Caught here, it leaves no line in the server's log.
        NULL;
    END;
    IF new_keys IS NOT NULL THEN
        -- C7: the keys are won by now. Somebody else may have taken and released one after the token was drawn.
        IF {mark} >= new_token OR new_token > 9007199254740991 THEN
            new_token := {schema}.token_of_new(new_keys);
        END IF;
        n := {schema}.now_us();
        RETURN QUERY
        SELECT name, new_token, ends - n FROM unnest(new_keys, new_ends) AS new (name, ends) WHERE new_token IS NOT NULL;
    END IF;
    IF cardinality(new_keys) = cardinality(p_keys) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH free AS MATERIALIZED (
        SELECT place, wanted.*, {schema}.now_us() AS n
        FROM unnest(p_keys, p_ids, p_terms, p_groups, p_hosts, p_pids, p_programs, p_comments)
            AS wanted (name, wanted_id, term, in_group, on_host, by_pid, by_program, with_comment),
        LATERAL (
            SELECT ctid AS place FROM {schema}.leases
            WHERE key = name AND slot = 0 AND others = 0
                AND (id IS NULL OR (id <> wanted_id AND expires <= {schema}.now_us()))
                AND counter < 9007199254740991
            FOR UPDATE SKIP LOCKED
        ) AS row
    )
    UPDATE {schema}.leases AS lease
    SET counter = {token}, id = wanted_id, shared = false, state = 'h', token = {token},
        expires = n + term, granted_at = n, renewed_at = NULL,
        group_name = in_group, host = on_host, pid = by_pid, program = by_program, comment = with_comment
    FROM free WHERE lease.ctid = place
    RETURNING key, lease.token, lease.expires - n;
END
$$;
