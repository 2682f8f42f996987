-- Refuses to take over a row that has not ended. Owners are compared by their bytes, whatever the collation is.
CREATE TRIGGER IF NOT EXISTS {schema}.`{table}_guard` BEFORE UPDATE ON {schema}.`{table}` FOR EACH ROW
BEGIN
    IF CAST(CONVERT(NEW.owner USING utf8mb4) AS BINARY) <> CAST(CONVERT(OLD.owner USING utf8mb4) AS BINARY)
        AND TIMESTAMPDIFF(SECOND, '1970-01-01', OLD.expires_at) * 1000000 > {now}
    THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the lock is held';
    END IF;
END
