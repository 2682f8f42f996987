-- As acquire, for an exclusive lease of one key, but it does not wait for a row that another transaction has locked: then
-- the outcome is 'locked', and nothing has changed. It waits only for another transaction that takes the same free key. Most keys are
-- free, or have an exclusive holder.
CREATE OR REPLACE FUNCTION {schema}.acquire_one(
    p_patience text,
    p_key text,
    p_id bytea,
    p_term bigint,
    p_group text,
    p_host text,
    p_pid bigint,
    p_program text,
    p_comment text,
    OUT outcome text,
    OUT o_token bigint,
    OUT o_rest bigint,
    OUT o_key text,
    OUT o_now bigint,
    OUT o_holder text
)
LANGUAGE plpgsql {safe} {looks_up} AS $$
#variable_conflict use_column
DECLARE
    place tid;
    n bigint;
    new_token bigint;
BEGIN
    {guard}
    n := {schema}.now_us();
    new_token := {least_token};
    BEGIN
        INSERT INTO {schema}.leases (
            key, slot, counter, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
        )
        SELECT p_key, 0, new_token, p_id, false, 'h', new_token, n + p_term, n, p_group, p_host, p_pid, p_program, p_comment
        -- A row that is there may be locked.
        WHERE NOT EXISTS (SELECT FROM {schema}.leases WHERE key = p_key AND slot = 0)
        ON CONFLICT DO NOTHING;
    EXCEPTION WHEN lock_not_available THEN
        -- Caught here, it leaves no line in the server's log.
        outcome := 'locked';
        RETURN;
    END;
    IF FOUND THEN
        -- C7: the key is won by now. Somebody else may have taken and released it after the token was drawn.
        IF {mark} >= new_token OR new_token > 9007199254740991 THEN
            new_token := {schema}.token_of_new(ARRAY[p_key]);
        END IF;
        outcome := CASE WHEN new_token IS NULL THEN 'exhausted' ELSE 'granted' END;
        o_token := new_token;
        o_rest := n + p_term - {schema}.now_us();
        RETURN;
    END IF;
    SELECT ctid INTO place FROM {schema}.leases
    WHERE key = p_key AND slot = 0 AND others = 0 AND (id IS NULL OR expires <= {schema}.now_us())
        AND counter < 9007199254740991
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        -- C4: the row is locked by now.
        n := {schema}.now_us();
        UPDATE {schema}.leases
        SET counter = {token}, id = p_id, shared = false, state = 'h', token = {token},
            expires = n + p_term, granted_at = n, renewed_at = NULL, group_name = p_group, host = p_host, pid = p_pid,
            program = p_program, comment = p_comment
        WHERE ctid = place
        RETURNING token INTO o_token;
        outcome := 'granted';
        o_rest := n + p_term - {schema}.now_us();
        RETURN;
    END IF;
    -- An exclusive holder refuses without a lock on the row, and so without a write.
    SELECT 'refused', expires - clock.n, key, clock.n, {schema}.shown(lease)
    INTO outcome, o_rest, o_key, o_now, o_holder
    FROM {schema}.leases AS lease, (SELECT {schema}.now_us() AS n) AS clock
    WHERE key = p_key AND slot = 0 AND id <> p_id AND NOT shared AND (expires IS NULL OR expires > clock.n);
    IF FOUND THEN
        RETURN;
    END IF;
    BEGIN
        {unlocked}
        SELECT * INTO outcome, o_token, o_rest, o_key, o_now, o_holder
        FROM {schema}.acquire(
            p_patience, p_id, ARRAY[p_key], '{-1}', p_term, p_group, p_host, p_pid, p_program, p_comment
        );
    EXCEPTION WHEN lock_not_available THEN
        -- Another transaction is using the key for the first time.
        outcome := 'locked';
    END;
END
$$;
