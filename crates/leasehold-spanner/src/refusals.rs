//! Keys that were refused lately.

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{AcquireReply, AcquireRequest, Clock as _, Key};
use leasehold_driver::SystemClock;

/// For at least so long a refusal is remembered, and for at most twice as long.
const LATELY: Duration = Duration::from_secs(10);

/// Keys that were refused lately, and are probably still held. A try for one of them first reads without a lock: what a waiter
/// locks keeps the holder's renewals waiting, until Spanner ends the transaction if the waiter is killed.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    keys: Mutex<Keys>,
    clock: SystemClock,
}

#[derive(Debug, Default)]
struct Keys {
    since: Duration,
    newer: HashSet<Key>,
    older: HashSet<Key>,
}

impl Refusals {
    /// Whether a request names one of them.
    pub(crate) fn concern(&self, request: &AcquireRequest) -> bool {
        let keys = self.keys();
        request.claims().keys().any(|key| keys.newer.contains(key) || keys.older.contains(key))
    }

    /// Notes what became of a request.
    pub(crate) fn note(&self, request: &AcquireRequest, reply: &AcquireReply) {
        self.note_at(request, reply, self.clock.now());
    }

    fn note_at(&self, request: &AcquireRequest, reply: &AcquireReply, now: Duration) {
        let mut keys = self.keys();
        if now >= keys.since + LATELY {
            (keys.since, keys.older) = (now, mem::take(&mut keys.newer));
        }
        match reply {
            AcquireReply::Refused(refused) => drop(keys.newer.insert(refused.key.clone())),
            AcquireReply::Granted(_) => {
                for key in request.claims().keys() {
                    keys.newer.remove(key);
                    keys.older.remove(key);
                }
            }
        }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Claims, Granted, LeaseId, Mode, RefusalReason, Refused, Remaining, Ttl};

    use super::*;

    fn request(name: &str) -> AcquireRequest {
        let claims = Claims::one(Key::new(name).unwrap(), Mode::Exclusive);
        AcquireRequest::new(LeaseId::mint().unwrap(), claims, Ttl::new(LATELY).unwrap())
    }

    fn refusal(name: &str) -> AcquireReply {
        let key = Key::new(name).unwrap();
        AcquireReply::Refused(Refused::new(key, RefusalReason::Held(None), None))
    }

    #[test]
    fn a_refusal_is_remembered_until_a_grant() {
        let (refusals, a) = (Refusals::default(), request("a"));
        assert!(!refusals.concern(&a));
        refusals.note_at(&a, &refusal("a"), LATELY);
        assert!(refusals.concern(&a) && !refusals.concern(&request("b")));
        refusals.note_at(
            &a,
            &AcquireReply::Granted(Granted::new(None, Remaining::Never, true)),
            LATELY,
        );
        assert!(!refusals.concern(&a));
    }

    #[test]
    fn a_refusal_is_forgotten_after_a_while() {
        let refusals = Refusals::default();
        for n in 0..100 {
            let name = format!("k{n}");
            refusals.note_at(&request(&name), &refusal(&name), n * LATELY / 4);
        }
        assert!(!refusals.concern(&request("k0")) && refusals.concern(&request("k95")));
        let keys = refusals.keys();
        assert!(keys.newer.len() + keys.older.len() <= 8);
    }
}
