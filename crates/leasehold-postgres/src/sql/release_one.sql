-- As release, for one key that is not kept, but it does not wait, as acquire_one. A lease in slot 0 may be shared too.
CREATE OR REPLACE FUNCTION {schema}.release_one(
    p_patience text,
    p_key text,
    p_id bytea,
    p_token bigint,
    p_wakes boolean,
    OUT outcome text,
    OUT o_rest bigint
)
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    place tid;
    is_alone boolean;
    highest bigint;
BEGIN
    {guard}
    SELECT ctid, others = 0 AND {removable}, counter INTO place, is_alone, highest FROM {schema}.leases
    WHERE key = p_key AND slot = 0 AND id = p_id AND state = 'h' AND (p_token IS NULL OR token = p_token)
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        IF is_alone THEN
            PERFORM {schema}.pass(highest);
            DELETE FROM {schema}.leases
            WHERE ctid = place
            RETURNING CASE WHEN expires <= {schema}.now_us() THEN 'expired' ELSE 'released' END INTO outcome;
        ELSE
            UPDATE {schema}.leases SET id = NULL
            WHERE ctid = place
            RETURNING CASE WHEN expires <= {schema}.now_us() THEN 'expired' ELSE 'released' END INTO outcome;
        END IF;
        IF p_wakes AND EXISTS (SELECT FROM {schema}.waiters WHERE key = p_key) THEN
            PERFORM {schema}.wake(ARRAY[p_key]);
        END IF;
        RETURN;
    END IF;
    {unlocked}
    SELECT * INTO outcome, o_rest FROM {schema}.release(p_patience, p_id, ARRAY[p_key], NULL, p_token, p_wakes);
END
$$;
