//! Intervals by a function: cases 21 to 26.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_local::locks::{LockError, Options};

use super::waited;
use crate::common::*;

#[test]
fn case_21_exponential_interval_times_out() {
    let options = Options::new().retries(3).interval_by(|attempt| 10 * MS * 2_u32.pow(attempt));
    let expected = (10 + 20 + 40) * MS;
    assert_eq!(waited(&options), (LockError::TimedOut { attempts: 4, waited: expected }, expected));
}

#[test]
fn case_22_linear_interval_times_out() {
    let options = Options::new().retries(3).interval_by(|attempt| 10 * MS * (attempt + 1));
    let expected = (10 + 20 + 30) * MS;
    assert_eq!(waited(&options), (LockError::TimedOut { attempts: 4, waited: expected }, expected));
}

#[test]
fn case_23_manual_jitter_times_out() {
    let calls = AtomicU32::new(0);
    let jitter = move |attempt| MS * (attempt + 1 + calls.fetch_add(7, Ordering::Relaxed) % 5);
    let (error, waited) = waited(&Options::new().retries(3).interval_by(jitter));
    assert_eq!(error, LockError::TimedOut { attempts: 4, waited });
    assert_eq!(waited, (1 + (2 + 2) + (3 + 4)) * MS);
}

/// Decided by the type: an interval is a `Duration`.
#[test]
fn case_24_a_return_that_is_no_integer_does_not_compile() {
    fn takes(interval: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Options {
        Options::new().interval_by(interval)
    }
    takes(|_| MS);
}

#[test]
fn case_25_a_return_of_zero_retries_at_once() {
    let (error, waited) = waited(&Options::new().retries(3).interval_by(|_| Duration::ZERO));
    assert_eq!(waited, Duration::ZERO);
    assert_eq!(error, LockError::TimedOut { attempts: 4, waited });
}

/// Decided by the type: a `Duration` is never negative.
#[test]
fn case_26_a_negative_return_does_not_compile() {
    assert_eq!(MS.checked_sub(2 * MS), None);
}
