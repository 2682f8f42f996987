//! The table, and the statements about it.

use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::types;
use leasehold_core::Key;

/// The name of the table: the only text of a caller that is ever put into a statement (C14: it is checked and quoted, everything
/// else is bound).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableName(String);

impl TableName {
    /// The longest name of a table in Spanner.
    pub(crate) const MAX_BYTES: usize = 128;

    /// Accepts a letter, then letters, digits and `_`.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.len() <= Self::MAX_BYTES;
        is_name.then(|| Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The columns.
pub(crate) const COLUMNS: [&str; 15] = [
    "key",
    "id",
    "counter",
    "shared",
    "state",
    "token",
    "expires",
    "granted_at",
    "renewed_at",
    "group_name",
    "host",
    "pid",
    "program",
    "comment",
    "reason",
];

/// Spanner's clock, in microseconds since 1970.
pub(crate) const NOW: &str = "UNIX_MICROS(CURRENT_TIMESTAMP())";

/// Every statement.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) table: TableName,
    /// The rows of `@keys` with Spanner's clock, at least one row for each key, locked until the transaction ends.
    lock: String,
    /// The same without a lock.
    look_up: String,
    /// At most `@most` rows from `@key` and `@id` on, with Spanner's clock.
    pub(crate) page: String,
    /// How many of the columns the table has, and Spanner's clock.
    pub(crate) health: String,
    /// Creates the table.
    pub(crate) create: String,
}

impl Sql {
    pub(crate) fn new(table: TableName, clock: &str) -> Self {
        let name = table.as_str();
        let columns =
            COLUMNS[1..].iter().map(|column| format!("l.{column}")).collect::<Vec<_>>().join(", ");
        let named = format!(
            "SELECT {clock} AS now, k AS key, {columns} FROM UNNEST(@keys) AS k \
             LEFT JOIN@{{JOIN_METHOD=APPLY_JOIN}} `{name}` AS l ON l.key = k"
        );
        let known = COLUMNS.map(|column| format!("'{column}'")).join(", ");
        Self {
            lock: format!("@{{LOCK_SCANNED_RANGES=exclusive}} {named}"),
            look_up: named,
            page: format!(
                "SELECT {clock} AS now, l.key, {columns} FROM `{name}` AS l \
                 WHERE l.key >= @key AND (l.key > @key OR l.id >= @id) ORDER BY l.key, l.id LIMIT @most"
            ),
            health: format!(
                "SELECT {clock} AS now, (SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS \
                 WHERE TABLE_SCHEMA = '' AND TABLE_NAME = '{name}' AND COLUMN_NAME IN ({known})) AS known"
            ),
            create: include_str!("create.sql")
                .replace("{table}", &format!("`{name}`"))
                .trim_end()
                .to_owned(),
            table,
        }
    }

    /// Reads and locks the rows of some keys.
    pub(crate) fn lock<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Statement {
        of_keys(&self.lock, keys)
    }

    /// Reads the rows of some keys.
    pub(crate) fn look_up<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Statement {
        of_keys(&self.look_up, keys)
    }
}

fn of_keys<'k>(statement: &str, keys: impl Iterator<Item = &'k Key>) -> Statement {
    let mut names: Vec<_> = keys.map(|key| key.as_str().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    let array = types::array(types::string());
    Statement::builder(statement).add_typed_param("keys", names, array).build()
}
