-- How many slots after the first have a lease or a mark: with none, slot 0 alone decides about the key.
CREATE OR REPLACE FUNCTION {schema}.count_others(p_keys text[]) RETURNS void
LANGUAGE plpgsql {safe} AS $$
BEGIN
    UPDATE {schema}.leases AS lease SET others = counted.others
    FROM (
        SELECT key, count(id) FILTER (WHERE slot > 0)::integer AS others
        FROM {schema}.leases WHERE key = ANY (p_keys) GROUP BY key
    ) AS counted
    WHERE lease.key = counted.key AND lease.slot = 0 AND lease.others <> counted.others;
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

-- Tells those who listen for a key that it may be free, and how many they are. The row of the key is locked, so this
-- statement sees every waiter whose try did not wait for the lock.
CREATE OR REPLACE FUNCTION {schema}.wake(p_keys text[]) RETURNS void
LANGUAGE plpgsql {safe} AS $$
BEGIN
    PERFORM pg_notify(listener, count(*) OVER (PARTITION BY key) || ' ' || key)
    FROM {schema}.waiters WHERE key = ANY (p_keys) AND until > {schema}.now_us();
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
