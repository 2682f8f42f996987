-- What another user may create in a schema of the search path: operators and functions named as the server's, for every
-- combination of types that a store may use, and types and relations. Each fails when it is used.
CREATE ROLE hostile;
GRANT CREATE, USAGE ON SCHEMA public TO hostile;
SET ROLE hostile;
SET search_path = pg_catalog;
DO $do$
DECLARE
    call record;
    name text;
BEGIN
    CREATE TEMPORARY TABLE used AS
    SELECT type, array_type
    FROM unnest('{
        boolean, "char", smallint, integer, bigint, double precision, numeric, text, varchar, name, bytea, tid, oid,
        regclass, interval, timestamp without time zone, timestamp with time zone, text[], bigint[], integer[], bytea[],
        name[]
    }'::regtype[]) AS type, LATERAL (SELECT nullif(typarray, 0)::regtype AS array_type FROM pg_type WHERE oid = type) AS a;
    FOR call IN
        SELECT DISTINCT ON (oprname, one.type, other.type)
            oprname AS operator, one.type AS one, other.type AS other,
            CASE WHEN result.typtype = 'p' THEN coalesce(one.array_type, one.type) ELSE result.oid END::regtype AS result
        FROM pg_operator
        JOIN pg_type AS result ON result.oid = oprresult
        JOIN pg_type AS first ON first.oid = oprleft
        JOIN pg_type AS second ON second.oid = oprright
        JOIN used AS one ON one.type = oprleft OR first.typtype = 'p'
        JOIN used AS other ON other.type = oprright OR second.typtype = 'p'
        WHERE first.typtype <> 'p' OR second.typtype <> 'p'
            OR other.type = one.type OR one.type = other.array_type OR other.type = one.array_type
    LOOP
        name := 'f' || md5(call::text);
        EXECUTE format(
            'CREATE FUNCTION public.%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''hostile''; END $f$;
             CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%s)',
            name, call.one, call.other, call.result, call.operator, call.one, call.other, name
        );
    END LOOP;
    -- Of a function for any type, one for each of three types.
    FOR call IN
        SELECT DISTINCT ON (proname, arguments) proname AS function, arguments,
            CASE WHEN result.typtype = 'p' THEN any_type::text ELSE result.oid::regtype::text END AS result
        FROM pg_proc
        JOIN pg_type AS result ON result.oid = prorettype AND typname NOT IN ('internal', 'trigger', 'event_trigger')
        JOIN unnest('{text, bigint, bytea}'::regtype[]) AS any_type ON true,
        LATERAL (
            SELECT count(*) AS arity, string_agg(
                CASE argument.typname
                    WHEN 'anyarray' THEN any_type || '[]'
                    WHEN 'anycompatiblearray' THEN any_type || '[]'
                    ELSE coalesce(used.type, any_type)::text
                END, ', ' ORDER BY nth
            ) AS arguments
            FROM unnest(proargtypes) WITH ORDINALITY AS given (oid, nth)
            JOIN pg_type AS argument ON argument.oid = given.oid
            LEFT JOIN used ON used.type = argument.oid
            WHERE used.type IS NOT NULL OR argument.typname LIKE 'any%' AND argument.typname NOT LIKE '%range'
                AND argument.typname NOT LIKE '%enum'
        ) AS of_function
        WHERE pronamespace = 'pg_catalog'::regnamespace AND pronargs <= 3 AND arity = pronargs
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''hostile''; END $f$',
            call.function, call.arguments, call.result
        );
    END LOOP;
    FOR call IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') LOOP
        EXECUTE format('CREATE TABLE public.%I ()', call.relname);
    END LOOP;
    FOREACH name IN ARRAY '{text, bytea, name, oid, tid}'::text[] LOOP
        EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (false)', name, name);
    END LOOP;
END
$do$;
