use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, Error, Result};

use crate::{StoreUrl, SystemClock};

/// How the table is used, whatever its database is.
#[derive(Debug, Clone)]
pub struct NeneConfig {
    table: String,
    pub(super) skew: Duration,
    pub(super) settle: Duration,
    guard: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl NeneConfig {
    /// The table's name in the PHP library.
    pub const DEFAULT_TABLE: &str = "distributed_locks";
    /// By how much clocks differ at most, by default.
    pub const DEFAULT_SKEW: Duration = Duration::from_secs(1);
    /// How long until the second look at a row that was taken over, by default.
    pub const DEFAULT_SETTLE: Duration = Duration::from_millis(500);
    /// The options of a URL that [`take`](Self::take) knows.
    pub const OPTIONS: &[&str] = &["format", "table", "skew", "settle", "guard"];

    /// The longest name of a table.
    const MAX_TABLE: usize = 57;

    /// Takes the options `format`, which must be `nene` (`legacy` means the same), `table`, `skew`, `settle` and `guard`
    /// from a URL.
    ///
    /// # Errors
    /// `InvalidInput` for another format or a wrong value.
    pub fn take(url: &mut StoreUrl) -> Result<Self> {
        let format = url.take("format");
        if !matches!(format.as_deref(), Some("nene" | "legacy")) {
            return Err(Error::invalid_input(format!(
                "the option format is {:?}; it must be nene, which is the table of the PHP library Nene DistributedLock",
                format.unwrap_or_default()
            )));
        }
        let mut config = Self::default();
        config.table = url.take("table").unwrap_or(config.table);
        config.skew = url.take_duration("skew")?.unwrap_or(config.skew);
        config.settle = url.take_duration("settle")?.unwrap_or(config.settle);
        config.guard = url.take_flag("guard")?;
        config.check()?;
        Ok(config)
    }

    /// Sets the table's name: a letter or `_`, then at most 56 letters, digits and `_`.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets by how much the clocks of the PHP hosts and of the server differ at most.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Sets how long after a row was taken over the store looks whether a PHP client has overwritten it: longer than such
    /// a client takes between reading a row and overwriting it.
    #[must_use]
    pub fn settle(mut self, settle: Duration) -> Self {
        self.settle = settle;
        self
    }

    /// Lets [`prepare`](leasehold_core::Store::prepare) add a trigger to the table that refuses to change the owner of a row
    /// which has not ended: a PHP client that overwrites what it read earlier gets a `PDOException`.
    #[must_use]
    pub fn guard(mut self, guard: bool) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the clock that counts [`settle`](Self::settle), and in a SQLite file also the terms; for tests that do not
    /// sleep.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The clock that is set.
    pub fn get_clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// A statement with the table's name in the place of `{table}`: with a schema's, the only text of a caller that is ever
    /// put into a statement (C14: [`check`](Self::check) accepts identifiers, everything else is bound).
    pub fn inserted(&self, statement: &str) -> String {
        statement.replace("{table}", &self.table)
    }

    /// The second statement too if the trigger is asked for.
    pub fn with_guard<'s>(&self, create: &'s str, guard: &'s str) -> Vec<&'s str> {
        if self.guard { vec![create, guard] } else { vec![create] }
    }

    /// Refuses a name that is no identifier.
    ///
    /// # Errors
    /// `InvalidInput`, with what is allowed.
    pub fn check(&self) -> Result<()> {
        let table = &self.table;
        let is_name = table.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && table.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && table.len() <= Self::MAX_TABLE
            && !["sqlite_", "pg_"].iter().any(|own| table.to_ascii_lowercase().starts_with(own));
        if is_name {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "the option table is {table:?}; it must be a letter or _, then at most {} letters, digits and _, and not begin \
             with sqlite_ or pg_",
            Self::MAX_TABLE - 1
        )))
    }
}

impl Default for NeneConfig {
    /// The table `distributed_locks`, hosts whose clocks differ by a second, clients that overwrite what they read within
    /// half a second, and no trigger.
    fn default() -> Self {
        Self {
            table: Self::DEFAULT_TABLE.to_owned(),
            skew: Self::DEFAULT_SKEW,
            settle: Self::DEFAULT_SETTLE,
            guard: false,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn take(options: &str) -> Result<NeneConfig> {
        NeneConfig::take(&mut StoreUrl::parse(&format!("x:?{options}"))?)
    }

    #[test]
    fn every_option_is_taken() {
        let config = take("format=nene&table=locks&skew=2s&settle=10ms&guard=1").unwrap();
        assert_eq!((config.table.as_str(), config.guard), ("locks", true));
        let times = (Duration::from_secs(2), Duration::from_millis(10));
        assert_eq!((config.skew, config.settle), times);
        for format in ["nene", "legacy"] {
            let config = take(&format!("format={format}")).unwrap();
            assert_eq!(config.table, "distributed_locks", "{format}");
        }
    }

    #[test]
    fn wrong_options_are_named() {
        for (options, fragment) in [
            ("format=old", "\"old\""),
            ("table=locks", "must be nene"),
            ("format=nene&skew=x", "skew"),
            ("format=nene&guard=x", "guard"),
            ("format=nene&table=a-b", "\"a-b\""),
            ("format=nene&table=pg_x", "pg_"),
            ("format=nene&table=", "letter"),
        ] {
            let error = take(options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{options}");
            assert!(error.to_string().contains(fragment), "{error}");
        }
    }
}
