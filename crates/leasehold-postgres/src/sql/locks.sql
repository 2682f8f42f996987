-- Locks the keys' own rows, in the order of the keys, and adds those that are missing: one that others remove meanwhile too.
    INSERT INTO {schema}.leases (key, slot)
    SELECT name, 0 FROM unnest(p_keys) AS wanted (name) ORDER BY name COLLATE "C"
    ON CONFLICT (key, slot) DO UPDATE SET slot = 0 WHERE false;
