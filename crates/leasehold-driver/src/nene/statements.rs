use super::config::NeneConfig;

/// The statements of one database. Each takes its parameters once, in this order; times are seconds since 1970-01-01 UTC.
///
/// A write names the row as it was seen, and changes nothing if it has changed since.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Statements {
    /// The table's name in statements.
    pub table: String,
    /// Creates the table if it is missing, and the trigger if it is asked for. No parameters.
    pub create: Vec<String>,
    /// The row of: resource.
    pub look: String,
    /// Adds: resource, owner, `expires_at`, `acquired_at`.
    pub insert: String,
    /// Sets: owner, `expires_at`, `acquired_at`; of the row: resource, owner, `expires_at`; and on a server, before: its
    /// clock in microseconds, read when the row is locked.
    pub replace: String,
    /// Removes the row: resource, owner, `expires_at`.
    pub delete: String,
    /// The rows after: resource; at most: number.
    pub page: String,
    /// How many triggers of ours the table has. No parameters.
    pub guards: String,
}

/// The error of the trigger for a client that would take a row over which has not ended.
const HELD: &str = "the lock is held";

impl Statements {
    /// For a SQLite file. Clients read the clock themselves.
    pub fn sqlite(config: &NeneConfig) -> Self {
        let table = &config.table;
        let is_seen = |resource: u8, owner: u8, expires_at: u8| {
            format!(
                "resource = ?{resource} AND owner = ?{owner} AND expires_at = datetime(?{expires_at}, 'unixepoch')"
            )
        };
        let columns = "resource, owner, unixepoch(expires_at), unixepoch(acquired_at)";
        let mut create = vec![format!(
            "CREATE TABLE IF NOT EXISTS {table} (
                 resource    VARCHAR(255) NOT NULL PRIMARY KEY,
                 owner       VARCHAR(255) NOT NULL,
                 expires_at  DATETIME NOT NULL,
                 acquired_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
             )"
        )];
        create.extend(config.guard.then(|| {
            format!(
                "CREATE TRIGGER IF NOT EXISTS {table}_guard BEFORE UPDATE ON {table}
                 WHEN NEW.owner <> OLD.owner AND OLD.expires_at > datetime('now')
                 BEGIN
                     SELECT RAISE(ABORT, '{HELD}');
                 END"
            )
        }));
        Self {
            create,
            look: format!("SELECT {columns} FROM {table} WHERE resource = ?1"),
            insert: format!(
                "INSERT INTO {table} (resource, owner, expires_at, acquired_at)
                 VALUES (?1, ?2, datetime(?3, 'unixepoch'), datetime(?4, 'unixepoch'))
                 ON CONFLICT (resource) DO NOTHING"
            ),
            replace: format!(
                "UPDATE {table}
                 SET owner = ?1, expires_at = datetime(?2, 'unixepoch'), acquired_at = datetime(?3, 'unixepoch')
                 WHERE {}",
                is_seen(4, 5, 6)
            ),
            delete: format!("DELETE FROM {table} WHERE {}", is_seen(1, 2, 3)),
            page: format!(
                "SELECT {columns} FROM {table} WHERE resource > ?1 ORDER BY resource LIMIT ?2"
            ),
            guards: format!(
                "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name = '{table}_guard'"
            ),
            table: table.clone(),
        }
    }

    /// For MySQL and MariaDB: the table of this database, a quoted name, with this collation if it is created; `now` reads
    /// the clock in microseconds when a statement begins. A look and a page return it as `o_now`, whether the session
    /// commits each statement as `o_commits`, whether its texts are in UTF-8 as `o_utf8`, and `read_only`, which shows
    /// whether the server is, as `o_read_only`: they have a row in any case. A write changes nothing on such a server, which
    /// would let an administrator write.
    pub fn mysql(
        config: &NeneConfig,
        database: &str,
        now: &str,
        read_only: &str,
        collation: &str,
    ) -> Self {
        let name = &config.table;
        let table = format!("{database}.`{name}`");
        // Whatever the character sets and collations are: the bytes in UTF-8.
        let exact = |column: &str| format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)");
        let time = "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? SECOND";
        let seconds = |column: &str| format!("TIMESTAMPDIFF(SECOND, '1970-01-01', {column})");
        let is_seen = format!(
            "resource = ? AND {} = ? AND expires_at = {time} AND NOT ({read_only})",
            exact("owner")
        );
        let columns = format!(
            "{now} AS o_now, @@autocommit AS o_commits, \
             CONCAT_WS(',', @@character_set_client, @@character_set_connection, @@character_set_results) \
             = 'utf8mb4,utf8mb4,utf8mb4' AS o_utf8, {read_only} AS o_read_only, \
             resource AS o_resource, owner AS o_owner, {} AS o_expires_at, {} AS o_acquired_at",
            seconds("expires_at"),
            seconds("acquired_at")
        );
        let mut create = vec![format!(
            "CREATE TABLE IF NOT EXISTS {table} (
                 resource    VARCHAR(255) NOT NULL PRIMARY KEY,
                 owner       VARCHAR(255) NOT NULL,
                 expires_at  DATETIME NOT NULL,
                 acquired_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
             ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"
        )];
        create.extend(config.guard.then(|| {
            format!(
                "CREATE TRIGGER IF NOT EXISTS {database}.`{name}_guard` BEFORE UPDATE ON {table} FOR EACH ROW
                 BEGIN
                     IF {} <> {} AND {} * 1000000 > {now} THEN
                         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{HELD}';
                     END IF;
                 END",
                exact("NEW.owner"),
                exact("OLD.owner"),
                seconds("OLD.expires_at")
            )
        }));
        Self {
            create,
            look: format!(
                "SELECT {columns} FROM (SELECT 1) AS one LEFT JOIN {table} ON resource = ?"
            ),
            insert: format!(
                "INSERT INTO {table} (resource, owner, expires_at, acquired_at)
                 SELECT ?, ?, {time}, {time} FROM (SELECT 1) AS one WHERE NOT ({read_only})"
            ),
            // The clock of a statement is that of its beginning, and SYSDATE that of the moment.
            replace: format!(
                "UPDATE {table} SET owner = ?, expires_at = {time}, acquired_at = {time}
                 WHERE {is_seen} AND {now} + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) < ?"
            ),
            delete: format!("DELETE FROM {table} WHERE {is_seen}"),
            page: format!(
                "SELECT {columns} FROM (SELECT 1) AS one LEFT JOIN (
                     SELECT * FROM {table} WHERE resource > ? ORDER BY resource LIMIT ?
                 ) AS page ON TRUE ORDER BY resource"
            ),
            guards: format!(
                "SELECT COUNT(*) FROM information_schema.TRIGGERS
                 WHERE TRIGGER_SCHEMA = '{}' AND TRIGGER_NAME = '{name}_guard'",
                database.trim_matches('`')
            ),
            table,
        }
    }

    /// For PostgreSQL: the table of this schema, a quoted name; `now` reads the clock in microseconds at that moment. A
    /// look and a page return it as `o_now`, whether the session is read-only as `o_read_only`, and whether the server is a
    /// standby as `o_standby`: they have a row in any case. A write returns a row if it changed one. All names and
    /// operators are qualified: the search path of a session may begin with a schema in which others create functions and
    /// operators.
    pub fn postgres(config: &NeneConfig, schema: &str, now: &str) -> Self {
        let name = &config.table;
        let table = format!("{schema}.\"{name}\"");
        let time = |parameter: u8| {
            format!(
                "(timestamp '1970-01-01' OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => ${parameter}::bigint))"
            )
        };
        let seconds = |column: &str| {
            format!(
                "CASE WHEN pg_catalog.isfinite({column}) THEN extract(epoch FROM {column})::bigint END"
            )
        };
        let is_seen = |resource: u8, owner: u8, expires_at: u8| {
            format!(
                "resource OPERATOR(pg_catalog.=) ${resource} \
                 AND owner COLLATE pg_catalog.\"C\" OPERATOR(pg_catalog.=) ${owner} \
                 AND expires_at OPERATOR(pg_catalog.=) {}",
                time(expires_at)
            )
        };
        let columns = format!(
            "{now} AS o_now, pg_catalog.current_setting('transaction_read_only')::boolean AS o_read_only, \
             pg_catalog.pg_is_in_recovery() AS o_standby, resource::pg_catalog.text AS o_resource, owner::pg_catalog.text AS o_owner, \
             {} AS o_expires_at, {} AS o_acquired_at",
            seconds("expires_at"),
            seconds("acquired_at")
        );
        // Until the end of the transaction.
        let durably = "pg_catalog.set_config('synchronous_commit', \
                       CASE WHEN pg_catalog.current_setting('synchronous_commit') \
                       OPERATOR(pg_catalog.=) 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) IS NOT NULL";
        let mut create = vec![format!(
            "CREATE TABLE IF NOT EXISTS {table} (
                 resource    varchar(255) COLLATE \"C\" NOT NULL PRIMARY KEY,
                 owner       varchar(255) COLLATE \"C\" NOT NULL,
                 expires_at  timestamp(0) NOT NULL,
                 acquired_at timestamp(0) NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')
             )"
        )];
        if config.guard {
            create.push(format!(
                "CREATE OR REPLACE FUNCTION {schema}.\"{name}_guard\"() RETURNS trigger
                 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
                 BEGIN
                     IF NEW.owner <> OLD.owner AND ({}) * 1000000 > {now} THEN
                         RAISE EXCEPTION '{HELD}';
                     END IF;
                     RETURN NEW;
                 END
                 $$",
                seconds("OLD.expires_at")
            ));
            create.push(format!("DROP TRIGGER IF EXISTS \"{name}_guard\" ON {table}"));
            create.push(format!(
                "CREATE TRIGGER \"{name}_guard\" BEFORE UPDATE ON {table} FOR EACH ROW
                 EXECUTE FUNCTION {schema}.\"{name}_guard\"()"
            ));
        }
        Self {
            create,
            look: format!(
                "SELECT {columns} FROM (SELECT 1) AS one LEFT JOIN {table} ON resource OPERATOR(pg_catalog.=) $1"
            ),
            insert: format!(
                "INSERT INTO {table} (resource, owner, expires_at, acquired_at)
                 SELECT $1, $2, {}, {} WHERE {durably}
                 ON CONFLICT (resource) DO NOTHING RETURNING 1",
                time(3),
                time(4)
            ),
            replace: format!(
                "WITH locked AS MATERIALIZED (SELECT 1 FROM {table} WHERE resource OPERATOR(pg_catalog.=) $4 FOR UPDATE),
                     clock AS MATERIALIZED (SELECT {now} AS now FROM locked WHERE {durably})
                 UPDATE {table} SET owner = $1, expires_at = {}, acquired_at = {}
                 FROM clock WHERE {} AND clock.now OPERATOR(pg_catalog.<) $7 RETURNING 1",
                time(2),
                time(3),
                is_seen(4, 5, 6)
            ),
            delete: format!("DELETE FROM {table} WHERE {} RETURNING 1", is_seen(1, 2, 3)),
            page: format!(
                "SELECT {columns} FROM (SELECT 1) AS one LEFT JOIN (
                     SELECT * FROM {table} WHERE resource OPERATOR(pg_catalog.>) $1 ORDER BY resource LIMIT $2
                 ) AS page ON true ORDER BY resource"
            ),
            guards: format!(
                "SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger
                 JOIN pg_catalog.pg_proc AS called ON called.oid OPERATOR(pg_catalog.=) tgfoid
                 WHERE tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('{table}')
                     AND tgname OPERATOR(pg_catalog.=) '{name}_guard'
                     AND proconfig OPERATOR(pg_catalog.@>) '{{\"search_path=pg_catalog, pg_temp\"}}'"
            ),
            table,
        }
    }
}
