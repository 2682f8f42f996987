-- Takes all keys for one lease, or none. The keys are in their order. p_limits has an entry for each: -1 is exclusive,
-- 0 shared, n shared by at most n. It locks the rows, so that the try of a waiter sees every release that did not see
-- the waiter.
CREATE OR REPLACE FUNCTION {schema}.acquire(
    p_patience text,
    p_id bytea,
    p_keys text[],
    p_limits integer[],
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
    n bigint;
    one {schema}.leases;
    refusing {schema}.leases;
    mine bigint[];
    longest bigint := 0;
    place integer;
BEGIN
    {guard}
    {locks}
    n := {schema}.now_us();
    o_now := n;

    <<decision>>
    BEGIN
        -- C3: this lease may be held already. C3b: what is left of a broken one goes.
        FOR i IN 1 .. cardinality(p_keys) LOOP
            SELECT * INTO one FROM {schema}.leases
            WHERE key = p_keys[i] AND id = p_id AND state = 'h' AND (expires IS NULL OR expires > n);
            mine[i] := one.token;
            IF one.shared <> (p_limits[i] >= 0) THEN
                outcome := 'mode';
                o_key := p_keys[i];
                EXIT decision;
            END IF;
        END LOOP;
        IF mine[1] = ALL (mine) THEN
            UPDATE {schema}.leases
            SET expires = CASE WHEN expires IS NULL THEN NULL ELSE greatest(expires, n + p_term) END, renewed_at = n
            WHERE key = ANY (p_keys) AND id = p_id AND state = 'h';
            SELECT min(expires) - {schema}.now_us() INTO o_rest FROM {schema}.leases
            WHERE key = ANY (p_keys) AND id = p_id AND state = 'h';
            outcome := 'confirmed';
            o_token := mine[1];
            RETURN;
        END IF;
        PERFORM {schema}.drop_held(p_keys, p_id, n, NULL) WHERE cardinality(array_remove(mine, NULL)) > 0;

        -- C9, C10: the first key that refuses, and when the whole request could be granted.
        FOR i IN 1 .. cardinality(p_keys) LOOP
            SELECT (holder.lease).* INTO one
            FROM (
                SELECT lease, lease.id = p_id AS own,
                    row_number() OVER (ORDER BY expires NULLS LAST, token) AS nth, count(*) OVER () AS live
                FROM {schema}.leases AS lease
                WHERE key = p_keys[i] AND id IS NOT NULL AND state IS DISTINCT FROM 'e'
                    AND (expires IS NULL OR expires > n)
            ) AS holder
            WHERE p_limits[i] = -1 OR (lease).shared IS NOT TRUE OR own
                OR (p_limits[i] > 0 AND nth = live - p_limits[i] + 1)
            ORDER BY nth DESC
            LIMIT 1;
            CONTINUE WHEN NOT FOUND;
            longest := CASE
                WHEN longest IS NULL OR one.expires IS NULL THEN NULL
                ELSE greatest(longest, one.expires - n)
            END;
            IF refusing.key IS NULL OR outcome IS NULL THEN
                outcome := 'refused';
                refusing := one;
            END IF;
        END LOOP;
        IF outcome = 'refused' THEN
            o_rest := longest;
            o_key := refusing.key;
            o_holder := {schema}.shown(refusing);
            EXIT decision;
        END IF;

        -- C7: one token for all keys, drawn now that they are won.
        SELECT greatest({least_token}, max(counter) + 1) INTO o_token
        FROM {schema}.leases WHERE key = ANY (p_keys) AND slot = 0;
        IF o_token > 9007199254740991 THEN
            outcome := 'exhausted';
            o_key := p_keys[1];
            EXIT decision;
        END IF;
        -- C8: only what is over makes room, and what is left of this id.
        UPDATE {schema}.leases SET id = NULL
        WHERE key = ANY (p_keys) AND id IS NOT NULL AND (id = p_id OR expires <= n);
        FOR i IN 1 .. cardinality(p_keys) LOOP
            SELECT coalesce(min(slot) FILTER (WHERE id IS NULL), max(slot) + 1) INTO place
            FROM {schema}.leases WHERE key = p_keys[i];
            INSERT INTO {schema}.leases (
                key, slot, id, shared, state, token, expires, granted_at, group_name, host, pid, program, comment
            )
            VALUES (
                p_keys[i], place, p_id, p_limits[i] >= 0, 'h', o_token, n + p_term, n, p_group, p_host, p_pid,
                p_program, p_comment
            )
            ON CONFLICT (key, slot) DO UPDATE SET
                id = excluded.id, shared = excluded.shared, state = excluded.state, token = excluded.token,
                expires = excluded.expires, granted_at = excluded.granted_at, renewed_at = NULL,
                group_name = excluded.group_name, host = excluded.host, pid = excluded.pid,
                program = excluded.program, comment = excluded.comment;
        END LOOP;
        UPDATE {schema}.leases SET counter = o_token WHERE key = ANY (p_keys) AND slot = 0;
        PERFORM {schema}.count_others(p_keys);
        outcome := 'granted';
        o_rest := n + p_term - {schema}.now_us();
        RETURN;
    END;
    -- What is not granted leaves no row. Unless it has ended the rest of a lease, a crash loses nothing of it: those
    -- who wait for the locked rows do not wait for the disk.
    PERFORM {schema}.remove_free(p_keys);
    IF cardinality(array_remove(mine, NULL)) = 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END
$$;
