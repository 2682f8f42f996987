-- Registers a listener for these keys, until it stays or for so many microseconds.
INSERT INTO {schema}.waiters (key, listener, until)
SELECT name, $2, {schema}.now_us() OPERATOR(pg_catalog.+) $3 FROM pg_catalog.unnest($1) AS wanted (name)
ON CONFLICT (key, listener) DO UPDATE SET until = excluded.until
