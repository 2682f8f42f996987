use std::time::Duration;

use leasehold_core::{Error, Result};

use super::statements::Statements;
use crate::SpannerConfig;

/// Which table of spindle to use, and how: the table is in the database of a [`SpannerConfig`].
///
/// ```
/// use leasehold_spanner::SpindleConfig;
///
/// let url = "spanner://my-project/my-instance/my-database?format=spindle&table=locktable&duration=10s";
/// let config = SpindleConfig::parse(url)?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SpindleConfig {
    pub(super) spanner: SpannerConfig,
    pub(super) duration: Duration,
}

impl SpindleConfig {
    /// The duration of spindle's clients by default, and the shortest that they accept.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(10);
    /// spindle raises a shorter one to it.
    pub const SHORTEST_DURATION: Duration = Duration::from_secs(1);

    const OPTIONS: &[&str] = &["format", "duration"];

    /// Parses `spanner://PROJECT/INSTANCE/DATABASE?format=spindle&table=TABLE`, without connecting. The options are those of
    /// [`SpannerConfig::parse`], and:
    /// - `table`, which has no default: the table of the clients of spindle;
    /// - `duration`: that of the clients of spindle, such as `10s`. It is the longest term.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong URL, which no message repeats.
    pub fn parse(url: &str) -> Result<Self> {
        let (spanner, mut url) = SpannerConfig::read(url)?;
        let format = url.take("format");
        if format.as_deref() != Some("spindle") {
            return Err(Error::invalid_input(format!(
                "the option format is {:?}; it must be spindle, which is the table of the Go library spindle v2",
                format.unwrap_or_default()
            )));
        }
        if !spanner.names_table() {
            return Err(Error::invalid_input(
                "format=spindle needs the option table, the table of the clients of spindle",
            ));
        }
        let duration = url.take_duration("duration")?.unwrap_or(Self::DEFAULT_DURATION);
        url.finish(&[SpannerConfig::OPTIONS, Self::OPTIONS].concat())?;
        let config = Self::new(spanner).duration(duration);
        config.check()?;
        config.statements()?;
        Ok(config)
    }

    /// The table that `spanner` names, with spindle's default duration.
    pub fn new(spanner: SpannerConfig) -> Self {
        Self { spanner, duration: Self::DEFAULT_DURATION }
    }

    /// Sets the duration: a whole number of milliseconds, a second or more, and the same in all clients, for it is not in the
    /// table. It is the longest term.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// The statement that creates the table, for a migration of your own.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting.
    pub fn schema_sql(&self) -> Result<String> {
        Ok(self.statements()?.create)
    }

    pub(super) fn statements(&self) -> Result<Statements> {
        Ok(Statements::new(&self.spanner.table_name()?, self.spanner.clock))
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_whole = self.duration.subsec_nanos().is_multiple_of(1_000_000);
        if is_whole && self.duration >= Self::SHORTEST_DURATION && self.duration <= MOST {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "the option duration is {:?}; it must be whole milliseconds, {:?} to {MOST:?}, and what the clients of spindle have",
            self.duration,
            Self::SHORTEST_DURATION
        )))
    }
}

/// The longest duration: a day, for which our claim rows stay.
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_is_parsed() {
        let url =
            "spanner://p/i/d?format=spindle&table=locktable&emulator=127.0.0.1:1&duration=2500ms";
        let config = SpindleConfig::parse(url).unwrap();
        assert_eq!(config.duration, Duration::from_millis(2_500));
        assert!(
            config.schema_sql().unwrap().starts_with("CREATE TABLE IF NOT EXISTS `locktable` (")
        );
        let config = SpindleConfig::parse("spanner://p/i/d?format=spindle&table=t").unwrap();
        assert_eq!(config.duration, Duration::from_secs(10));
    }

    #[test]
    fn mistakes_in_a_url_are_named() {
        let mistakes = [
            ("spanner://p/i/d?table=t", "format is \"\""),
            ("spanner://p/i/d?format=nene&table=t", "\"nene\""),
            ("spanner://p/i/d?format=spindle", "option table"),
            ("spanner://p/i/d?format=spindle&table=a-b", "\"a-b\""),
            ("spanner://p/i/d?format=spindle&table=t&duration=999ms", "1s"),
            ("spanner://p/i/d?format=spindle&table=t&duration=1000001us", "whole milliseconds"),
            ("spanner://p/i/d?format=spindle&table=t&duration=25h", "86400s"),
            ("spanner://p/i/d?format=spindle&table=t&ttl=1", "\"ttl\""),
        ];
        leasehold_testkit::urls::refuses(SpindleConfig::parse, &mistakes);
    }
}
