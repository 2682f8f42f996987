-- Raises the high-water mark to at least this. Only one session at a time may set it, or it could go back. That lock ends with the inner
-- transaction, so that nobody waits for the disk; a sequence keeps its value.
CREATE OR REPLACE FUNCTION {schema}.pass(p_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF {mark} OPERATOR(pg_catalog.>=) p_token THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM pg_catalog.pg_advisory_xact_lock({lock}, '{schema}.mark'::pg_catalog.regclass::pg_catalog.oid::integer);
        PERFORM pg_catalog.setval('{schema}.mark', greatest(last_value, p_token)) FROM {schema}.mark;
        RAISE SQLSTATE 'LH002';
    EXCEPTION WHEN SQLSTATE 'LH002' THEN
        RETURN;
    END;
END
$$;

-- Another token for keys that this transaction has added a row of, because the mark has passed the one that it drew before: somebody else
-- has taken and released such a key since (C7). Null at the end of the tokens; the rows are gone then.
CREATE OR REPLACE FUNCTION {schema}.token_of_new(p_keys text[]) RETURNS bigint
LANGUAGE plpgsql {safe} AS $$
#variable_conflict use_column
DECLARE
    new_token bigint := {least_token};
BEGIN
    IF new_token > 9007199254740991 THEN
        DELETE FROM {schema}.leases WHERE key = ANY (p_keys);
        RETURN NULL;
    END IF;
    UPDATE {schema}.leases SET counter = new_token, token = new_token WHERE key = ANY (p_keys) AND slot = 0;
    RETURN new_token;
END
$$;

-- Removes the rows of those of the keys that have neither a lease nor a mark of an evicted one. Their slots 0 are locked. A counter
-- that is damaged stays, so that it ends no other key.
CREATE OR REPLACE FUNCTION {schema}.remove_free(p_keys text[]) RETURNS void
LANGUAGE plpgsql {safe} AS $$
DECLARE
    free text[];
    highest bigint;
BEGIN
    SELECT array_agg(key), max(counter) INTO free, highest
    FROM {schema}.leases WHERE key = ANY (p_keys) AND slot = 0 AND id IS NULL AND others = 0 AND {removable};
    IF free IS NOT NULL THEN
        PERFORM {schema}.pass(highest);
        DELETE FROM {schema}.leases WHERE key = ANY (free);
    END IF;
END
$$;

-- How many slots after the first have a lease or a mark: with none, slot 0 alone decides about the key, and is its only row.
-- Free slots are used again; more of them than of others, and a few, are removed, for every operation on the key reads them.
CREATE OR REPLACE FUNCTION {schema}.count_others(p_keys text[]) RETURNS void
LANGUAGE plpgsql {safe} AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT key, max(others) FILTER (WHERE slot = 0) AS known, count(id) FILTER (WHERE slot > 0) AS others,
            count(*) FILTER (WHERE slot > 0 AND id IS NULL) AS free
        FROM {schema}.leases WHERE key = ANY (p_keys) GROUP BY key
    LOOP
        IF counted.known <> counted.others THEN
            UPDATE {schema}.leases SET others = counted.others WHERE key = counted.key AND slot = 0;
        END IF;
        IF counted.free > counted.others + 8 OR (counted.free > 0 AND counted.others = 0) THEN
            DELETE FROM {schema}.leases WHERE key = counted.key AND slot > 0 AND id IS NULL;
        END IF;
    END LOOP;
END
$$;

-- Drops the live records of a lease, with this token if one is given.
CREATE OR REPLACE FUNCTION {schema}.drop_held(p_keys text[], p_id bytea, p_now bigint, p_token bigint) RETURNS void
LANGUAGE plpgsql {safe} AS $$
BEGIN
    UPDATE {schema}.leases SET id = NULL
    WHERE key = ANY (p_keys) AND id = p_id AND state = 'h' AND (expires IS NULL OR expires > p_now)
        AND (p_token IS NULL OR token = p_token);
    IF FOUND THEN
        PERFORM {schema}.count_others(p_keys);
        PERFORM {schema}.wake(p_keys);
    END IF;
END
$$;

-- Notifies the listeners of a key that it may be free, with their number. The row of the key is locked, so this
-- statement sees every waiter whose try did not wait for the lock. Processes whose names begin alike share a channel.
CREATE OR REPLACE FUNCTION {schema}.wake(p_keys text[]) RETURNS void
LANGUAGE plpgsql {safe} AS $$
BEGIN
    -- With a full queue the commit would fail, and the release with it. Waiters try again by themselves.
    IF pg_notification_queue_usage() > 0.9 THEN
        RETURN;
    END IF;
    PERFORM pg_notify(left(listener, 11), count(*) OVER (PARTITION BY key) || ' ' || key)
    FROM {schema}.waiters WHERE key = ANY (p_keys) AND until > {schema}.now_us();
    -- Transactions that notify commit one after the other, in a lock: that wait is no reason to give up.
    IF FOUND THEN
        PERFORM set_config('lock_timeout', '0', true);
    END IF;
END
$$;

-- A row for readers, independent of the settings of their session. It has qualified names, and no path of its own, as
-- now_us: both become part of the statement that calls them.
CREATE OR REPLACE FUNCTION {schema}.shown(lease {schema}.leases) RETURNS text
LANGUAGE sql AS $$
    SELECT pg_catalog.json_build_object(
        'key', lease.key, 'slot', lease.slot, 'counter', lease.counter, 'id', pg_catalog.encode(lease.id, 'hex'),
        'shared', lease.shared, 'state', lease.state::pg_catalog.text, 'token', lease.token, 'expires', lease.expires,
        'granted_at', lease.granted_at, 'renewed_at', lease.renewed_at, 'group_name', lease.group_name,
        'host', lease.host, 'pid', lease.pid, 'program', lease.program, 'comment', lease.comment,
        'reason', lease.reason
    )::pg_catalog.text
$$;
