//! The options that select records.

use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::inspect::{Expired, Filter};
use leasehold::{GroupName, Key, LeaseId, Mode, Remaining};

use super::values;
use crate::failure::Failure;

/// Selects keys; a key must match every option.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Exactly this key; may be repeated, for any of these keys
    #[arg(long = "key", value_name = "KEY", value_parser = values::key())]
    keys: Vec<Key>,

    /// Keys that begin with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// Keys that match this pattern as a whole: * is any text, ? is one character
    #[arg(long, value_name = "PATTERN")]
    glob: Option<String>,
}

/// Selects records; a record must match every option.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    #[command(flatten)]
    keys: KeyArgs,

    /// The keys of this lease
    #[arg(long, value_name = "ID")]
    lease: Option<LeaseId>,

    /// Leases in this group
    #[arg(long, value_name = "GROUP")]
    group: Option<GroupName>,

    /// Leases in this mode
    #[arg(long)]
    mode: Option<ModeArg>,

    /// Leases taken on this host
    #[arg(long)]
    host: Option<String>,

    /// Taken at least this long ago
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    min_age: Option<Duration>,

    /// Taken less than this long ago
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    max_age: Option<Duration>,

    /// With at least this much left
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    min_left: Option<Duration>,

    /// With less than this left
    #[arg(long, value_name = "DUR", value_parser = values::duration)]
    max_left: Option<Duration>,

    /// Expired records too
    #[arg(long, conflicts_with = "only_expired")]
    expired: bool,

    /// Only expired records
    #[arg(long, conflicts_with_all = ["min_left", "max_left"])]
    only_expired: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArg {
    Exclusive,
    Shared,
}

impl KeyArgs {
    /// The filter of the options.
    pub(crate) fn filter(self) -> Result<Filter, Failure> {
        let mut filter = Filter::default();
        if !self.keys.is_empty() {
            filter = filter.with_keys(self.keys);
        }
        if let Some(prefix) = self.prefix {
            filter = filter.with_prefix(prefix);
        }
        Ok(match self.glob {
            Some(glob) => filter.with_glob(&glob)?,
            None => filter,
        })
    }
}

impl FilterArgs {
    /// The filter of the options.
    pub(crate) fn filter(self) -> Result<Filter, Failure> {
        let mut filter =
            self.keys.filter()?.with_expired(match (self.expired, self.only_expired) {
                (_, true) => Expired::Only,
                (true, false) => Expired::In,
                (false, false) => Expired::Out,
            });
        if let Some(lease) = self.lease {
            filter = filter.with_lease(lease);
        }
        if let Some(group) = self.group {
            filter = filter.with_group(group);
        }
        if let Some(mode) = self.mode {
            filter = filter.with_mode(match mode {
                ModeArg::Exclusive => Mode::Exclusive,
                ModeArg::Shared => Mode::SHARED,
            });
        }
        if let Some(host) = self.host {
            filter = filter.with_host(host);
        }
        filter = match range("age", self.min_age, self.max_age)? {
            Some((from, Some(to))) => filter.with_age(from..to),
            Some((from, None)) => filter.with_age_from(from),
            None => filter,
        };
        Ok(match range("left", self.min_left, self.max_left)? {
            Some((from, Some(to))) => {
                filter.with_remaining(Remaining::For(from)..Remaining::For(to))
            }
            Some((from, None)) => filter.with_remaining_from(Remaining::For(from)),
            None => filter,
        })
    }
}

/// The half-open range, if one was given.
fn range(
    what: &str,
    min: Option<Duration>,
    max: Option<Duration>,
) -> Result<Option<(Duration, Option<Duration>)>, Failure> {
    match (min, max) {
        (None, None) => Ok(None),
        (Some(min), Some(max)) if min >= max => Err(Failure::usage(format!(
            "--min-{what} is {min:?} and --max-{what} is {max:?}, which matches nothing; --min-{what} must be the \
             smaller"
        ))),
        (min, max) => Ok(Some((min.unwrap_or_default(), max))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn filter(line: &str) -> Result<Filter, Failure> {
        let words = ["leasehold", "list"].into_iter().chain(line.split_ascii_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Command::List(list) => list.filter.filter(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_become_the_filter() {
        let seconds = Duration::from_secs;
        let key = |key| Key::new(key).unwrap();
        assert_eq!(filter("").unwrap(), Filter::default());
        assert_eq!(
            filter(
                "--key a --key b --prefix p --glob g* --lease w --group o --mode shared --host h"
            )
            .unwrap(),
            Filter::default()
                .with_keys([key("a"), key("b")])
                .with_prefix("p")
                .with_glob("g*")
                .unwrap()
                .with_lease(LeaseId::foreign(b"w").unwrap())
                .with_group(GroupName::new("o").unwrap())
                .with_mode(Mode::SHARED)
                .with_host("h")
        );
        assert_eq!(
            filter("--max-age 5s --min-left 1s").unwrap(),
            Filter::default()
                .with_age(Duration::ZERO..seconds(5))
                .with_remaining_from(Remaining::For(seconds(1)))
        );
        assert_eq!(filter("--expired").unwrap(), Filter::default().with_expired(Expired::In));
        assert_eq!(
            filter("--only-expired").unwrap(),
            Filter::default().with_expired(Expired::Only)
        );
    }

    #[test]
    fn empty_ranges_are_refused() {
        let error = filter("--min-age 5s --max-age 5s").unwrap_err().to_string();
        assert!(error.contains("--min-age is 5s"), "{error}");
        assert!(filter("--min-left 2s --max-left 1s").is_err());
    }
}
