//! The statements about spindle's table.

use std::time::Duration;

use google_cloud_spanner::statement::{Statement, StatementBuilder};
use google_cloud_spanner::types;

use super::claims;
use crate::table::TableName;

/// The columns and their types.
pub(super) const COLUMNS: [(&str, &str); 4] = [
    ("name", "STRING(MAX)"),
    ("heartbeat", "TIMESTAMP"),
    ("token", "TIMESTAMP"),
    ("writer", "STRING(MAX)"),
];

/// The suffix of a claim row of spindle v1: a time.
const OF_V1: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$";

/// The suffix of a claim row of spindle-rs: nanoseconds since 1970, of a token that has whole microseconds.
const OF_RUST: &str = r"^1[0-9]{15}000$";

/// How old the token of such a row may be. By chance, one in 600,000 of v2's own suffixes looks like it.
const RECENT: &str = "366 * 86400 * 1000000000";

/// How many rows a check looks at.
const LOOK_AT: usize = 10_000;

/// How many rows a page of a listing or purge looks at, so that many claim rows make no page slow.
pub(super) const PART: usize = 10_000;

/// How long our claim rows stay: a client of spindle that read the token before us may add the same one until it goes on.
pub(super) const KEEP_CLAIMS: Duration = Duration::from_secs(24 * 60 * 60);

/// Every statement. Each gives Spanner's clock as `now`.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) table: TableName,
    look: String,
    look_up: String,
    add: String,
    survey: String,
    page: String,
    purge: String,
    claims: String,
    pub(super) health: String,
    pub(super) hazards: String,
    pub(super) create: String,
}

impl Statements {
    pub(super) fn new(table: &TableName, clock: &str) -> Self {
        let name = table.as_str();
        let columns = format!("{clock} AS now, n AS asked, l.name, l.heartbeat, l.token, l.writer");
        let named = format!(
            "FROM UNNEST(@names) AS n LEFT JOIN@{{JOIN_METHOD=APPLY_JOIN}} `{name}` AS l ON l.name = n"
        );
        let locked = "@{LOCK_SCANNED_RANGES=exclusive}";
        // Two parts, so that each reads a range of keys.
        let neighbour = format!(
            "COALESCE((SELECT MIN(c.name) FROM `{name}` AS c WHERE c.token IS NOT NULL AND STARTS_WITH(c.name, @below)), \
             (SELECT MIN(c.name) FROM `{name}` AS c WHERE c.token IS NOT NULL AND c.name IN UNNEST(@above))) AS neighbour"
        );
        let suffix = "SUBSTR(c.name, CHAR_LENGTH(@below) + 1)";
        let foreign = is_of_another_generation("c", suffix, clock);
        let types = COLUMNS.map(|(column, kind)| format!("('{column}', '{kind}')")).join(", ");
        let part = format!(
            "SELECT name, heartbeat, token, writer FROM `{name}` WHERE name >= @from AND STARTS_WITH(name, @prefix) \
             ORDER BY name LIMIT {PART}"
        );
        // The last row of the part is always there, at least without a heartbeat: the next page begins behind it.
        let page = |wanted: &str| {
            format!(
                "WITH part AS ({part}) SELECT {clock} AS now, l.name AS asked, l.name, IF({wanted}, l.heartbeat, NULL) AS heartbeat, \
                 l.token, l.writer, p.looked FROM (SELECT MAX(name) AS last, COUNT(*) AS looked FROM part) AS p CROSS JOIN part AS l \
                 WHERE l.heartbeat IS NOT NULL AND {wanted} OR l.name = p.last ORDER BY l.name LIMIT @most"
            )
        };
        let old = format!("l.token IS NULL AND UNIX_MICROS(l.heartbeat) < {clock} - @kept");
        let (locks, above) = (
            format!("(SELECT name FROM `{name}` WHERE token IS NOT NULL LIMIT {LOOK_AT})"),
            "SELECT ARRAY_TO_STRING(ARRAY(SELECT part FROM UNNEST(SPLIT(l.name, '_')) AS part WITH OFFSET nth WHERE nth < upto \
             ORDER BY nth), '_') FROM UNNEST(GENERATE_ARRAY(1, ARRAY_LENGTH(SPLIT(l.name, '_')) - 1)) AS upto",
        );
        let last = r"REGEXP_EXTRACT(c.name, r'_([^_]*)$')";
        let any_foreign = is_of_another_generation("c", last, clock);
        Self {
            look: format!("{locked} SELECT {columns} {named}"),
            look_up: format!("SELECT {columns} {named}"),
            add: format!(
                "{locked} SELECT {columns}, {neighbour}, \
                 (SELECT c.heartbeat IS NOT NULL FROM `{name}` AS c WHERE c.name = @claim) AS claim_is_ours {named}"
            ),
            survey: format!(
                "SELECT {columns}, {neighbour}, (SELECT MIN(c.name) FROM `{name}` AS c WHERE STARTS_WITH(c.name, @below) \
                 AND {foreign}) AS stranger {named}"
            ),
            page: page("l.token IS NOT NULL"),
            purge: page(&format!("(l.token IS NOT NULL OR {old})")),
            claims: format!(
                "SELECT {clock} AS now, l.name AS asked, l.name, l.heartbeat, l.token, l.writer FROM `{name}` AS l \
                 WHERE STARTS_WITH(l.name, @prefix) AND {old} LIMIT @most"
            ),
            health: format!(
                "SELECT {clock} AS now, \
                 (SELECT COUNT(*) FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA = '' AND TABLE_NAME = '{name}') AS tables, \
                 (SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '' AND TABLE_NAME = '{name}' \
                 AND (COLUMN_NAME, SPANNER_TYPE) IN UNNEST([{types}])) AS known, \
                 (SELECT COUNT(*) FROM INFORMATION_SCHEMA.COLUMN_OPTIONS WHERE TABLE_SCHEMA = '' AND TABLE_NAME = '{name}' \
                 AND COLUMN_NAME = 'token' AND OPTION_NAME = 'allow_commit_timestamp' AND OPTION_VALUE = 'TRUE') AS stamped"
            ),
            hazards: format!(
                "SELECT (SELECT MIN(FORMAT('%T and %T', a.name, l.name)) FROM {locks} AS l CROSS JOIN UNNEST(ARRAY({above})) AS beginning \
                 JOIN@{{JOIN_METHOD=APPLY_JOIN}} `{name}` AS a ON a.name = beginning WHERE a.token IS NOT NULL) AS neighbours, \
                 (SELECT MIN(c.name) FROM (SELECT name, token, heartbeat FROM `{name}` WHERE token IS NULL AND heartbeat IS NULL \
                 LIMIT {LOOK_AT}) AS c WHERE {any_foreign}) AS stranger"
            ),
            create: include_str!("create.sql")
                .replace("{table}", &format!("`{name}`"))
                .trim_end()
                .to_owned(),
            table: table.clone(),
        }
    }

    /// The rows with these names, one for each, locked until the transaction ends.
    pub(super) fn look(&self, names: Vec<String>) -> Statement {
        Statement::builder(&*self.look).add_typed_param("names", names, texts()).build()
    }

    /// The same without a lock.
    pub(super) fn look_up(&self, names: Vec<String>) -> Statement {
        Statement::builder(&*self.look_up).add_typed_param("names", names, texts()).build()
    }

    /// The row of a lock, locked as the place where it would be, a lock whose name is the beginning of the other's, and whether the
    /// claim row of a lock without a row is ours; null if there is none.
    pub(super) fn add(&self, name: &str) -> Statement {
        let claim = claims::name_without_row(name);
        about(&self.add, name).add_param("claim", claim).build()
    }

    /// The same without a lock, and a claim row of another generation of spindle.
    pub(super) fn survey(&self, name: &str) -> Statement {
        about(&self.survey, name).build()
    }

    /// At most so many lock rows with a heartbeat, of the next [`PART`] from a name on.
    pub(super) fn page(&self, from: &str, prefix: &str, most: usize) -> Statement {
        of_prefix(&self.page, prefix, most).add_param("from", from).build()
    }

    /// The same, and claim rows of ours that are old enough.
    pub(super) fn purge(&self, from: &str, prefix: &str, most: usize) -> Statement {
        let page = of_prefix(&self.purge, prefix, most).add_param("from", from);
        page.add_param("kept", micros(KEEP_CLAIMS)).build()
    }

    /// At most so many claim rows of ours that are old enough.
    pub(super) fn claims(&self, prefix: &str, most: usize) -> Statement {
        of_prefix(&self.claims, prefix, most).add_param("kept", micros(KEEP_CLAIMS)).build()
    }
}

/// Whether a claim row is not of v2: by its suffix.
fn is_of_another_generation(row: &str, suffix: &str, clock: &str) -> String {
    format!(
        "{row}.token IS NULL AND {row}.heartbeat IS NULL AND (REGEXP_CONTAINS({suffix}, r'{OF_V1}') \
         OR (REGEXP_CONTAINS({suffix}, r'{OF_RUST}') AND SAFE_CAST({suffix} AS INT64) BETWEEN {clock} * 1000 - {RECENT} \
         AND {clock} * 1000))"
    )
}

fn about(statement: &str, name: &str) -> StatementBuilder {
    let above: Vec<_> = name.match_indices('_').map(|(at, _)| name[..at].to_owned()).collect();
    Statement::builder(statement)
        .add_typed_param("names", vec![name.to_owned()], texts())
        .add_typed_param("above", above, texts())
        .add_param("below", format!("{name}_"))
}

fn of_prefix(statement: &str, prefix: &str, most: usize) -> StatementBuilder {
    Statement::builder(statement).add_param("prefix", prefix).add_param("most", integer(most))
}

fn micros(time: Duration) -> i64 {
    integer(time.as_micros())
}

fn integer(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

fn texts() -> types::Type {
    types::array(types::string())
}
