-- Refuses to take over a row that has not ended.
CREATE TRIGGER IF NOT EXISTS {table}_guard BEFORE UPDATE ON {table}
WHEN NEW.owner <> OLD.owner AND OLD.expires_at > datetime('now')
BEGIN
    SELECT RAISE(ABORT, 'the lock is held');
END;
