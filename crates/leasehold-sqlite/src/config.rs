use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, Error, Result};
use leasehold_driver::{StoreUrl, SystemClock};

pub(crate) const NAME: &str = "sqlite";

/// Which database to use, and how.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// use leasehold_sqlite::SqliteConfig;
/// use std::time::Duration;
///
/// let store = SqliteConfig::memory().timeout(Duration::from_secs(1)).prefix("jobs_").connect().await?;
/// # store.close_database().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    pub(crate) location: Location,
    pub(crate) timeout: Duration,
    pub(crate) prefix: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) create_parent: bool,
    pub(crate) mode: FileMode,
}

/// Who may use the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FileMode {
    #[default]
    Owner,
    Group,
}

impl FileMode {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Location {
    File(PathBuf),
    Memory,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory => f.write_str(":memory:"),
        }
    }
}

impl SqliteConfig {
    /// The default time limit of an operation: 5 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default prefix of table names.
    pub const DEFAULT_PREFIX: &str = "leasehold_";

    /// The shortest time limit of an operation.
    const MIN_TIMEOUT: Duration = Duration::from_millis(1);
    /// The longest prefix, in bytes.
    const MAX_PREFIX: usize = 63;

    /// A database in a file, which [`connect`](SqliteConfig::connect) creates if it does not exist.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Location::File(path.into()))
    }

    /// A database in memory that only this store can see and that ends with it.
    pub fn memory() -> Self {
        Self::new(Location::Memory)
    }

    /// Parses a URL: `sqlite:PATH` or `sqlite::memory:`, with the options `timeout` (a duration such as `5s`),
    /// `prefix`, and `mode` (`0600` or `0660`).
    ///
    /// Percent-encode characters of the path that have a meaning in a URL: `?` is `%3F`, `%` is `%25`.
    ///
    /// ```
    /// use leasehold_sqlite::SqliteConfig;
    ///
    /// let config = SqliteConfig::parse("sqlite:/var/lib/app/locks.db?timeout=2s&prefix=app_")?;
    /// assert!(SqliteConfig::parse("sqlite:locks.db?cache=shared").is_err());
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for another scheme, no path, an unknown option or a wrong value.
    pub fn parse(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if url.scheme() != NAME {
            return Err(Error::invalid_input(format!(
                "the store URL begins with {}:, but the URL of this store begins with {NAME}:",
                url.scheme()
            )));
        }
        let mut config = Self::path_of(&url)?.map_or_else(Self::memory, Self::file);
        if let Some(timeout) = url.take_duration("timeout")? {
            config.timeout = timeout;
        }
        if let Some(prefix) = url.take("prefix") {
            config.prefix = prefix;
        }
        match url.take("mode").as_deref() {
            None | Some("0600") => {}
            Some("0660") => config.mode = FileMode::Group,
            Some(other) => {
                return Err(Error::invalid_input(format!(
                    "the option mode is {other:?}; write 0600 (the owner) or 0660 (the owner and the file's group)"
                )));
            }
        }
        config.check()?;
        url.finish(&["timeout", "prefix", "mode"])?;
        Ok(config)
    }

    /// The path in a URL; `None` for a database in memory.
    pub(crate) fn path_of(url: &StoreUrl) -> Result<Option<PathBuf>> {
        // Elsewhere this means a host, or a relative path.
        if url.has_server() {
            return Err(Error::invalid_input(
                "the sqlite URL has two slashes after the colon, but a SQLite store is never on another host; \
                 write sqlite:PATH, for example sqlite:locks.db or sqlite:/var/lib/app/locks.db",
            ));
        }
        match url.path() {
            ":memory:" => Ok(None),
            "" => Err(Error::invalid_input(
                "the sqlite URL has no path; write sqlite:PATH, for example sqlite:locks.db, or \
                 sqlite::memory:",
            )),
            path => Ok(Some(path.into())),
        }
    }

    /// Sets the time limit of an operation, at least 1 ms: how long it may wait for its turn and for the
    /// database's write lock, counted from the call.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the prefix of table names: a letter or `_`, then at most 62 letters, digits and `_`, not beginning
    /// with `sqlite_`. SQLite does not distinguish upper and lower case here. Stores with different prefixes do
    /// not exclude each other.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the clock, for tests that do not sleep. All users of a file must read the same clock: boot time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets whether missing parent directories of the file are created, with mode 0700; by default they are not.
    #[must_use]
    pub fn create_parent(mut self, create_parent: bool) -> Self {
        self.create_parent = create_parent;
        self
    }

    /// Lets the file's group use the database: a new file has mode 0660, and [`check`](leasehold_core::Store::check)
    /// reports no hazard for access by the group. By default a new file has mode 0600. An existing file keeps its
    /// mode.
    #[must_use]
    pub fn shared_with_group(mut self) -> Self {
        self.mode = FileMode::Group;
        self
    }

    /// The path of the file; `None` for a database in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.location {
            Location::File(path) => Some(path),
            Location::Memory => None,
        }
    }

    fn new(location: Location) -> Self {
        Self {
            location,
            timeout: Self::DEFAULT_TIMEOUT,
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            clock: Arc::new(SystemClock::new()),
            create_parent: false,
            mode: FileMode::Owner,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.timeout < Self::MIN_TIMEOUT {
            return Err(Error::invalid_input(format!(
                "the option timeout is {:?}; it must be at least {:?}",
                self.timeout,
                Self::MIN_TIMEOUT
            )));
        }
        if is_identifier(&self.prefix) {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "the option prefix is {:?}; it must be a letter or _, then at most 62 letters, digits and _, \
             and not begin with sqlite_",
            self.prefix
        )))
    }
}

/// Whether it may stand in a statement unquoted (C14). SQLite reserves names that begin with `sqlite_`.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= SqliteConfig::MAX_PREFIX
        && !text.to_ascii_lowercase().starts_with("sqlite_")
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn prefixes_are_identifiers() {
        for good in ["a", "_", "leasehold_", "A9_", &"a".repeat(63)] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in
            ["", "9a", "a-b", "a b", "a\"", "ä", "a;", "sqlite_", "SQLite_x", &"a".repeat(64)]
        {
            assert!(!is_identifier(bad), "{bad}");
        }
    }

    #[test]
    fn every_part_of_a_url_is_parsed() {
        let config = SqliteConfig::parse("sqlite:a%3Fb.db?timeout=250ms&prefix=x_").unwrap();
        assert!(matches!(&config.location, Location::File(path) if path.as_os_str() == "a?b.db"));
        assert_eq!((config.timeout, config.prefix.as_str()), (Duration::from_millis(250), "x_"));
        let memory = SqliteConfig::parse("sqlite::memory:").unwrap();
        assert!(matches!(memory.location, Location::Memory));
        let absolute = SqliteConfig::parse("sqlite:///var/x.db").unwrap();
        assert!(matches!(&absolute.location, Location::File(path) if path.has_root()));
    }

    #[test]
    fn mistakes_in_a_url_are_named() {
        for (url, fragment) in [
            ("sqlite:", "no path"),
            ("sqlite://locks.db", "two slashes"),
            ("redis://x", "begins with redis:"),
            ("sqlite:x?cache=shared", "\"cache\""),
            ("sqlite:x?mode=0666", "0600 (the owner) or 0660"),
            ("sqlite:x?prefix=a-b", "\"a-b\""),
            ("sqlite:x?timeout=0s", "timeout"),
            ("sqlite:x?timeout=1us", "at least 1ms"),
        ] {
            let error = SqliteConfig::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(fragment), "{error}");
        }
    }
}
