//! The statements, each in its own file, with the schema's name inserted.

/// The name of a schema: the only text of a caller that is ever put into a statement (C14: it is validated and quoted,
/// everything else is bound).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaName(String);

impl SchemaName {
    /// The longest name that PostgreSQL does not cut off.
    pub(crate) const MAX_BYTES: usize = 63;

    /// Accepts a letter or `_`, then letters, digits and `_`.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.len() <= Self::MAX_BYTES
            && !name.to_ascii_lowercase().starts_with("pg_");
        is_name.then(|| Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// As it is written in a statement.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// Inserts it, and what the functions share.
    pub(crate) fn inserted(&self, text: &str) -> String {
        text.replace("{guard}", include_str!("sql/guard.sql").trim())
            .replace("{locks}", include_str!("sql/locks.sql").trim())
            .replace("{unlocked}", include_str!("sql/unlocked.sql").trim())
            .replace("{settings}", include_str!("sql/settings.sql").trim())
            .replace("{safe}", SAFE)
            .replace("{token}", TOKEN)
            .replace("{removable}", REMOVABLE)
            .replace("{least_token}", LEAST_TOKEN)
            .replace("{most_raised}", MOST_RAISED)
            .replace("{mark}", MARK)
            .replace("{lock}", &LOCK.to_string())
            .replace("{indexed}", INDEXED)
            .replace("{looks_up}", LOOKS_UP)
            .replace("{functions}", &FUNCTIONS.to_string())
            .replace("{schema_text}", &self.0)
            .replace("{schema}", &self.quoted())
    }

    /// The call of a function with so many values.
    fn call(&self, function: &str, values: usize) -> String {
        let values: Vec<_> = (1..=values).map(|nth| format!("${nth}")).collect();
        format!("SELECT * FROM {}.{function}({})", self.quoted(), values.join(", "))
    }
}

/// The version of the functions. A change of functions that were released raises it, and clients of earlier versions can use
/// them still.
pub(crate) const FUNCTIONS: i32 = 1;

/// The search path of our functions: none of another user's functions, operators and types is found before the server's.
const SAFE: &str = "SET search_path = pg_catalog, pg_temp";

/// The next token of a row, as the rules mint it (C7).
const TOKEN: &str = "greatest(counter + 1, least(n, 4503599627370496))";

/// The high-water mark: no row that was removed had a higher counter. Not in a function, which the server would parse each time.
const MARK: &str = "(SELECT last_value FROM {schema}.mark)";

/// The least token that a key may have for which a row was just added.
const LEAST_TOKEN: &str = "greatest({mark} + 1, least({schema}.now_us(), 4503599627370496))";

/// The most that a token may be raised to: one that is near the end would end every key.
const MOST_RAISED: &str = "(greatest({mark}, 4503599627370496) + 4294967296)";

/// Whether the mark may take over the counter of a row: so far above a raise no number of grants brings it.
const REMOVABLE: &str = "counter <= {most_raised} + 4294967296";

/// The first half of the number of the advisory lock around a change of the high-water mark; the other is the sequence's.
const LOCK: i32 = 0x4c73_6864;

/// The same for a transaction that creates objects.
pub(crate) const SAFELY: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// The plan of a function must not be one for a small table, as it is between two bursts: keys are looked up. The sequence can only be
/// read whole, which then counts as a plan so expensive that it would be compiled.
const LOOKS_UP: &str = "SET enable_seqscan = off SET jit = off";

/// The same of a function on many keys: each key is looked up.
const INDEXED: &str = "SET enable_seqscan = off SET jit = off SET enable_hashjoin = off SET enable_mergejoin = off \
                       SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan";

/// The files that create the schema, in order.
const SCHEMA: &[&str] = leasehold_sql::objects!(["schema", "helpers", "writable"], ["health"]);

macro_rules! statements {
    (functions { $($function:ident: $values:literal),* $(,)? } files { $($file:ident),* }) => {
        /// Every statement that an operation sends: the call of a function, or the text of a file.
        #[derive(Debug)]
        pub(crate) struct Sql {
            pub(crate) schema: SchemaName,
            /// Creates everything.
            pub(crate) create: String,
            $(pub(crate) $function: String,)*
            $(pub(crate) $file: String,)*
        }

        impl Sql {
            pub(crate) fn new(schema: SchemaName) -> Self {
                let create = SCHEMA.iter().map(|text| schema.inserted(text)).collect();
                Self {
                    create,
                    $($function: schema.call(stringify!($function), $values),)*
                    $($file: schema.inserted(include_str!(concat!("sql/call/", stringify!($file), ".sql"))),)*
                    schema,
                }
            }
        }
    };
}

statements! {
    functions {
        acquire: 10, acquire_one: 9,
        renew: 7, renew_one: 6,
        release: 6, release_one: 5,
        evict: 5, purge: 4, health: 0,
    }
    files { exists, batch, look_up, page, scan, listen, leave }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_names_are_identifiers() {
        for good in ["a", "_", "leasehold", "A9_", "public", &"a".repeat(63)] {
            assert!(SchemaName::new(good).is_some(), "{good}");
        }
        for bad in ["", "9a", "a-b", "a b", "a\"", "ä", "a;", "pg_x", "PG_x", &"a".repeat(64)] {
            assert!(SchemaName::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn everything_is_inserted_everywhere() {
        let sql = format!("{:?}", Sql::new(SchemaName::new("x").unwrap()));
        assert!(
            [
                "{schema",
                "{guard",
                "{unlocked",
                "{settings",
                "{safe",
                "{indexed",
                "{looks_up",
                "{functions",
                "{token",
                "{removable",
                "{lock",
                "{least",
                "{most",
                "{mark"
            ]
            .iter()
            .all(|mark| !sql.contains(mark)),
            "{sql}"
        );
        assert!(!sql.contains("leasehold."), "the name of the schema is fixed somewhere");
    }
}
