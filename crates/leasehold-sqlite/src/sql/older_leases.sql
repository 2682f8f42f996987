-- Whether programs of schema version 1 may have a lease: of this prefix, or of another one that was not upgraded.
SELECT EXISTS (SELECT 1 FROM {prefix}keys WHERE key IN (SELECT key FROM {prefix}holders))
    OR EXISTS (
        SELECT 1
        FROM sqlite_schema
        WHERE type = 'index' AND lower(name) LIKE '%keys\_by\_counter' ESCAPE '\' AND lower(tbl_name) <> lower('{prefix}keys')
    )
