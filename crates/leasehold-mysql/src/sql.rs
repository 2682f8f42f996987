//! The statements, each in its own file, with the database's name inserted.

/// The name of a database: the only text of a caller that is ever put into a statement (C14: it is validated and quoted,
/// everything else is bound).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseName(String);

impl DatabaseName {
    /// The longest name that MySQL accepts.
    pub(crate) const MAX_BYTES: usize = 64;

    /// Accepts letters, digits, `_`, `-` and `$`.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c))
            && name.len() <= Self::MAX_BYTES;
        is_name.then(|| Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As it is written in a statement.
    pub(crate) fn quoted(&self) -> String {
        format!("`{}`", self.0)
    }

    /// Inserts it, how the clock is read, and what else the files leave open.
    fn inserted(&self, text: &str, clock: &str) -> String {
        let mut text = text.to_owned();
        for (mark, shared) in SHARED {
            text = text.replace(mark, shared.trim_end());
        }
        text.replace("{now}", clock).replace("{schema}", &self.quoted())
    }
}

/// The server's clock: microseconds since 1970-01-01 UTC, whatever the session's time zone.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Whether the server is read-only, as a replica is. It would let an administrator write all the same, and answers reads.
pub(crate) const READ_ONLY: &str =
    "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only";

/// What the files share; a part may contain those after it.
const SHARED: &[(&str, &str)] = &[
    // A transaction that fails leaves nothing, and its error is the caller's.
    ("{rolls_back}", include_str!("sql/shared/rolls_back.sql")),
    ("{begins}", include_str!("sql/shared/begins.sql")),
    ("{reads}", include_str!("sql/shared/reads.sql")),
    // Refuses a server that is read-only, as it refuses other users.
    ("{writable}", include_str!("sql/shared/writable.sql")),
    ("{locks}", include_str!("sql/shared/locks.sql")),
    // Adds the rows of the wanted keys, each with its lease. A join may follow.
    ("{adds_wanted}", include_str!("sql/shared/adds_wanted.sql")),
    // Before an insertion: on MariaDB it waits for no row. MySQL has no shorter time than a second.
    ("{at_once}", include_str!("sql/shared/at_once.sql")),
    // The rows of the keys in `p_keys`, to be read. A condition may follow.
    ("{rows}", include_str!("sql/shared/rows.sql")),
    // The same rows, to be changed: what has a limit is read before.
    ("{own_rows}", include_str!("sql/shared/own_rows.sql")),
    // The rows of the wanted keys that a batch has added, to be changed. Those of others may be locked.
    ("{added_rows}", include_str!("sql/shared/added_rows.sql")),
    // The rows of the leases that a batch releases.
    ("{joins_released}", include_str!("sql/shared/joins_released.sql")),
    // The next token of a row that is there, as the rules mint it (C7).
    ("{token}", "GREATEST(counter + 1, LEAST(n, 4503599627370496))"),
    // The least token that a key may have for which a row was just added. `mark` was read.
    ("{least_token}", "GREATEST(mark + 1, LEAST(n, 4503599627370496))"),
    // The most that a counter may be for the mark to take it over: so far above a raise no number of grants brings it.
    ("{most_removed}", "({most_raised} + 4294967296)"),
    // The most that a token may be raised to: one that is near the end would end every key.
    ("{most_raised}", "(GREATEST(mark, 4503599627370496) + 4294967296)"),
    // The high-water mark: no row that was removed had a higher counter. As a part of another statement this would lock rows.
    ("{reads_mark}", "SELECT COALESCE(MAX(value), 0) INTO mark FROM {schema}.leasehold_mark;"),
    ("{settings}", include_str!("sql/shared/settings.sql")),
    // The replicas that this user sees, and whether it sees those of others.
    ("{replicas}", include_str!("sql/shared/replicas.sql")),
    ("{read_only}", READ_ONLY),
];

/// Whether the server is MariaDB, whatever version it reports. Only MariaDB reads such a comment.
pub(crate) const IS_MARIADB: &str = "SELECT 0 /*M!100600 + 1 */";

/// The files that create the objects, in order; the last one reports that everything is there. A line `-- next` separates
/// statements.
const SCHEMA: &[&str] = leasehold_sql::objects!(["schema", "helpers"], ["batch", "look", "ready"]);

/// The texts of the calls.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) database: DatabaseName,
    clock: &'static str,
    /// What the name of each procedure begins with.
    pub(crate) routines: String,
}

impl Sql {
    pub(crate) fn new(database: DatabaseName, clock: &'static str) -> Self {
        Self { routines: format!("{}.leasehold_", database.quoted()), database, clock }
    }

    /// A statement from its file.
    #[cfg(feature = "nene")]
    pub(crate) fn inserted(&self, text: &str) -> String {
        self.database.inserted(text, self.clock)
    }

    /// The statements that create everything, one by one.
    pub(crate) fn create(&self) -> Vec<String> {
        let files = SCHEMA.iter().flat_map(|file| file.split("-- next\n"));
        files.map(|text| self.database.inserted(text, self.clock)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_names_need_no_escape() {
        for good in ["a", "_", "leasehold", "A-9_$", "1", &"a".repeat(64)] {
            assert!(DatabaseName::new(good).is_some(), "{good}");
        }
        for bad in ["", "a b", "a`", "a\"", "ä", "a;", "a.b", "a/b", &"a".repeat(65)] {
            assert!(DatabaseName::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn everything_is_inserted_everywhere() {
        let sql = Sql::new(DatabaseName::new("x").unwrap(), NOW);
        for statement in sql.create() {
            assert!(!statement.contains(['{', '}']), "{statement}");
            assert!(statement.contains("`x`.leasehold_"), "{statement}");
        }
    }
}
