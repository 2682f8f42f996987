//! Converts arguments from text.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use leasehold::{Key, Ttl};

/// Parses a key; text that is not UTF-8 has its own message.
pub(super) fn key() -> impl TypedValueParser<Value = Key> {
    OsStringValueParser::new().try_map(|text: OsString| Key::try_from(text.as_bytes()))
}

/// Parses a duration such as `1m 30s`, up to the longest term.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= Ttl::MAX => Ok(duration),
        Ok(_) => Err("it must be at most 10 years (3650 days)".to_owned()),
        Err(error) => Err(format!("{error}; give a duration such as 30s, 5m, 1h30m or 250ms")),
    }
}

/// Parses the limit of a wait: a duration, or a number of seconds, as `flock -w` takes it.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse() {
        Ok(seconds) if is_number => match Duration::try_from_secs_f64(seconds) {
            Ok(wait) if wait <= Ttl::MAX => Ok(wait),
            _ => Err("it must be at most 10 years (3650 days)".to_owned()),
        },
        _ => duration(text),
    }
}

/// Parses a duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a TTL: a duration, or `never`.
pub(super) fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "never" {
        return Ok(Ttl::NEVER);
    }
    Ttl::new(duration(text)?).map_err(|error| error.to_string())
}

/// Parses the limit on holders.
pub(super) fn permits(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("it must be a number from 1 to {}", u32::MAX)),
        Ok(permits) => Ok(permits),
    }
}

/// Parses the size of a batch.
pub(super) fn batch(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(batch) if (1..=1_000).contains(&batch) => Ok(batch),
        _ => Err("it must be a number from 1 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "5", "-5s", "5 parsecs", "99999999999999999999s"] {
            assert!(duration(bad).unwrap_err().contains("such as 30s"), "{bad}");
        }
        assert!(duration("99999999years").unwrap_err().contains("at most 10 years"));
        assert!(positive_duration("0s").is_err());
    }

    #[test]
    fn a_wait_may_be_a_number_of_seconds() {
        assert_eq!(wait("3"), Ok(Duration::from_secs(3)));
        assert_eq!(wait("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(wait("1m"), Ok(Duration::from_secs(60)));
        for bad in ["", ".", "-1", "1e3", "inf", "NaN", "1 2", "9999999999999"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn terms_have_limits() {
        assert_eq!(ttl("never"), Ok(Ttl::NEVER));
        assert_eq!(ttl("30s"), Ok(Ttl::new(Duration::from_secs(30)).unwrap()));
        for bad in ["0s", "9ms", "11years", "-1s", "always"] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(permits("3"), Ok(3));
        assert!(["0", "-1", "", "4294967296"].iter().all(|bad| permits(bad).is_err()));
        assert_eq!(batch("1000"), Ok(1_000));
        assert!(["0", "1001", "x"].iter().all(|bad| batch(bad).is_err()));
    }
}
