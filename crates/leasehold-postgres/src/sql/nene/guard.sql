-- Refuses to take over a row that has not ended.
CREATE OR REPLACE FUNCTION {schema}."{table}_guard"() RETURNS trigger
LANGUAGE plpgsql {safe} AS $$
BEGIN
    IF NEW.owner <> OLD.owner
        AND (CASE WHEN isfinite(OLD.expires_at) THEN extract(epoch FROM OLD.expires_at)::bigint END) * 1000000 > {now}
    THEN
        RAISE EXCEPTION 'the lock is held';
    END IF;
    RETURN NEW;
END
$$;
DROP TRIGGER IF EXISTS "{table}_guard" ON {schema}."{table}";
CREATE TRIGGER "{table}_guard" BEFORE UPDATE ON {schema}."{table}" FOR EACH ROW
EXECUTE FUNCTION {schema}."{table}_guard"();
