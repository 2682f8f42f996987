use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Backoff, Claims, GroupName, Key, Lease, LeaseId, Level, Mode, Ttl, Wait, WaitReport,
};

use super::attempt::AttemptOutcome;
use crate::lease::ids::{Caller, Ownership};

/// When a held lease is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Keepalive {
    /// After a third of its TTL, with jitter; a lease without end is checked every 10 s.
    #[default]
    Auto,
    /// At this interval, which must be shorter than the holder may trust its TTL.
    Every(Duration),
    /// Never: the lease ends with its TTL unless [`Guard::renew`](crate::Guard::renew) is called.
    Off,
}

/// What is locked.
#[derive(Debug, Clone)]
pub(crate) enum LockTarget {
    Key(Key),
    Keys(Vec<Key>),
    Claims(Claims),
    Resume(Box<Lease>),
}

#[derive(Clone)]
pub(crate) struct LockOptions {
    pub(crate) what: LockTarget,
    /// `None` if the caller set no mode.
    pub(crate) mode: Option<Mode>,
    pub(crate) ttl: Option<Ttl>,
    pub(crate) wait: Wait,
    pub(crate) backoff: Option<Pauses>,
    pub(crate) on_blocked: Option<OnBlocked>,
    pub(crate) keepalive: Keepalive,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) program: Option<String>,
    pub(crate) comment: Option<String>,
    pub(crate) group: Option<GroupName>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) lease_id: Option<LeaseId>,
    pub(crate) fenced: bool,
    pub(crate) level: Level,
    pub(crate) observer: Option<Arc<dyn AttemptObserver>>,
    /// Who makes the request, if another awaits it.
    pub(crate) caller: Option<Caller>,
}

/// The caller's back-off; clones share its state.
#[derive(Clone)]
pub(crate) struct Pauses(Arc<Mutex<dyn Backoff>>);

impl Pauses {
    pub(crate) fn new(backoff: impl Backoff) -> Self {
        Self(Arc::new(Mutex::new(backoff)))
    }
}

impl Backoff for Pauses {
    fn next(&mut self, retry: u32) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next(retry)
    }
}

/// Learns why a wait continues; clones share it.
#[derive(Clone)]
pub(crate) struct OnBlocked(Arc<Mutex<Call>>);

type Call = dyn FnMut(&WaitReport) + Send;

impl OnBlocked {
    pub(crate) fn new(call: impl FnMut(&WaitReport) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(call)))
    }

    pub(crate) fn call(&self, report: &WaitReport) {
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(report);
    }
}

/// Observes the tries of a wait.
pub(crate) trait AttemptObserver: Send + Sync {
    /// A try under this id begins.
    fn tries(&self, id: &LeaseId, ownership: &Arc<Ownership>);

    /// The try ended like this.
    fn tried(&self, tried: &AttemptOutcome);
}

impl LockOptions {
    pub(crate) fn of(what: LockTarget, wait: Wait) -> Self {
        Self {
            what,
            mode: None,
            ttl: None,
            wait,
            backoff: None,
            on_blocked: None,
            keepalive: Keepalive::Auto,
            min_hold: Duration::ZERO,
            max_hold: None,
            lock_delay: Duration::ZERO,
            host: None,
            pid: None,
            program: None,
            comment: None,
            group: None,
            label: None,
            lease_id: None,
            fenced: false,
            level: Level::BestEffort,
            observer: None,
            caller: None,
        }
    }
}
