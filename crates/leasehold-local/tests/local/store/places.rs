//! A refused request keeps a place among the waiters, as long as somebody listens for its keys.

use leasehold_core::Wakeups;

use super::*;

/// The time for which keys are reserved.
const TURN: Duration = Duration::from_millis(100);

impl Both {
    fn listens(&self, keys: &str) -> Wakeups {
        let keys: Vec<_> = keys.split(' ').map(key).collect();
        answer(self.store.subscribe(&keys)).unwrap()
    }
}

fn is_woken(wakeups: &mut Wakeups) -> bool {
    pin!(wakeups.next()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_refused_request_among_parked_waiters_gets_its_turn_in_order() {
    let both = both();
    let mut holder = both.lock("a").unwrap();
    let mut waiters: Vec<_> = (0..16).map(|_| both.waits("a")).collect();
    both.refused("w", "a");
    let mut hints = both.listens("a");
    both.refused("w2", "a");
    assert_eq!(both.locks.entries()[0].waiters, 17);
    let mut hand_overs = 0;
    let granted = loop {
        drop(holder);
        hand_overs += 1;
        if is_woken(&mut hints) {
            break both.granted("w3", "a");
        }
        holder = waiters.remove(0).done().unwrap();
        // It waits again at once, as in a loop.
        waiters.push(both.waits("a"));
    };
    assert_eq!(hand_overs, 17);
    assert!(granted.fresh);
    assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()));
    both.release("w3", "a");
    drop(waiters.remove(0).done().unwrap());
    drop((waiters, hints));
    assert!(both.is_empty());
}

#[test]
fn a_parked_waiter_is_not_overtaken_by_requests() {
    let both = both();
    both.granted("w", "a");
    let waiter = both.waits("a");
    let _hints = both.listens("a");
    both.refused("x", "a");
    both.release("w", "a");
    both.refused("x", "a");
    let guard = waiter.done().unwrap();
    // Behind a shared holder, one waits alone.
    drop(guard);
    both.granted("x", "a");
    both.release("x", "a");
    let shared = both.locks.try_acquire(Keys::shared(key("b")), &patient()).unwrap();
    let waiter = both.waits("b");
    let reply = both.acquire("y", "b", Mode::SHARED);
    assert!(
        matches!(&reply, AcquireReply::Refused(why) if matches!(why.why, RefusalReason::Queued)),
        "{reply:?}"
    );
    drop(shared);
    drop(waiter.done().unwrap());
    assert!(both.is_empty());
}

#[test]
fn who_came_first_is_first_when_a_lock_goes_stale() {
    let stale = |both: &Both| {
        both.locks.try_acquire(key("a"), &Options::new().lock_timeout(MS)).unwrap().keep()
    };
    let both = both();
    stale(&both);
    let hints = both.listens("a");
    both.refused("w", "a");
    let waiter = both.waits("a");
    both.clock.advance(MS);
    both.granted("w", "a");
    both.release("w", "a");
    drop(waiter.done().unwrap());
    // The other way round.
    stale(&both);
    let waiter = both.waits("a");
    both.refused("w", "a");
    both.clock.advance(MS);
    assert!(both.is_queued("w", "a"));
    drop(waiter.done().unwrap());
    both.granted("w", "a");
    both.release("w", "a");
    drop(hints);
    assert!(both.is_empty());
}

#[test]
fn a_turn_keeps_others_out_until_it_is_over() {
    let both = both();
    let guard = both.lock("a").unwrap();
    let mut hints = both.listens("a");
    both.refused("w", "a");
    let mut waiter = both.waits("a");
    drop(guard);
    assert!(is_woken(&mut hints));
    assert!(both.lock("a").is_err());
    // Other claims are another place.
    both.refused("x", "a b");
    assert!(waiter.poll().is_pending());
    both.clock.advance(TURN - MS);
    assert!(waiter.poll().is_pending());
    both.clock.advance(MS);
    let guard = waiter.done().unwrap();
    both.refused("w", "a");
    assert!(!is_woken(&mut hints));
    drop(guard);
    assert!(is_woken(&mut hints), "it has a new place");
    both.granted("w", "a");
    both.release("w", "a");
    drop(hints);
    assert!(both.is_empty());
}

#[test]
fn who_no_longer_listens_has_no_place_and_leaves_nothing() {
    let both = both();
    let guard = both.lock("a").unwrap();
    both.refused("nobody", "a");
    assert_eq!(both.locks.entries()[0].waiters, 0);
    let (first, second) = (both.listens("b a"), both.listens("a b"));
    both.refused("w", "a b");
    let waiter = both.waits("a");
    drop(first);
    assert_eq!(both.locks.entries()[0].waiters, 2);
    drop(second);
    assert_eq!(both.locks.entries()[0].waiters, 1);
    drop(guard);
    drop(waiter.done().unwrap());
    // Nor if it was called.
    let guard = both.lock("a").unwrap();
    let listens = both.listens("a");
    both.refused("w", "a");
    drop(guard);
    assert!(both.lock("a").is_err());
    drop(listens);
    assert!(both.is_empty());
}

#[test]
fn a_place_for_several_keys_keeps_what_it_got_and_nobody_from_greater_keys() {
    let both = both();
    let [a, b] = ["a", "b"].map(|key| both.lock(key).unwrap());
    let mut hints = both.listens("a b c");
    both.refused("w", "a b c");
    // It waits for a, and keeps nobody from c.
    drop(both.lock("c").unwrap());
    drop(a);
    assert!(both.lock("a").is_err(), "it has this one now");
    assert!(!is_woken(&mut hints));
    drop(b);
    assert!(is_woken(&mut hints));
    both.granted("w2", "a b c");
    assert!(matches!(both.release("w2", "a b c"), ReleaseOutcome::Released));
    drop(hints);
    assert!(both.is_empty());
}

#[test]
fn requests_with_equal_claims_share_a_place() {
    let both = both();
    let guard = both.lock("a").unwrap();
    let mut hints = both.listens("a");
    both.refused("w", "a");
    both.refused("x", "a");
    assert_eq!(both.locks.entries()[0].waiters, 1);
    drop(guard);
    assert!(is_woken(&mut hints));
    both.granted("x", "a");
    both.refused("w", "a");
    both.release("x", "a");
    assert!(is_woken(&mut hints));
    both.granted("w", "a");
}

#[test]
fn where_newcomers_overtake_a_request_for_one_key_gets_its_turn_and_others_have_no_place() {
    let config = LocksConfig::new().sweep_never().barging(true);
    let locks = LocalLocks::with_config(config).unwrap();
    let both = Both { store: LocalStore::over(&locks), locks, ..both() };
    let guard = both.lock("a").unwrap();
    let (mut hints, several) = (both.listens("a"), both.listens("a b"));
    both.refused("several", "a b");
    both.refused("w", "a");
    assert_eq!(both.locks.entries()[0].waiters, 1);
    drop(guard);
    assert!(is_woken(&mut hints));
    assert!(both.lock("a").is_err());
    both.granted("w", "a");
    both.release("w", "a");
    drop((hints, several));
    assert!(both.is_empty());
}
