//! Compares locks with the rules of leases, answer by answer, for random operations.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, Clock, EvictRequest, EvictTarget, Key, LeaseId,
    ManualClock, Mode, Now, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Table, Ttl,
};
use leasehold_local::locks::{
    Guard, Keys, LocalLocks, LockError, LocksConfig, Options, ReleaseOutcome,
};

use crate::common::*;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

struct World {
    locks: LocalLocks<Key>,
    rules: Table,
    clock: ManualClock,
    held: Vec<(Guard<Key>, Claims)>,
    random: u64,
    granted: u32,
    refused: u32,
    expired: u32,
}

#[test]
fn locks_follow_the_rules_of_leases() {
    for seed in 1..=20 {
        let clock = ManualClock::new();
        let config = LocksConfig::new().clock(std::sync::Arc::new(clock.clone())).sweep_never();
        let locks = LocalLocks::with_config(config).unwrap();
        let (rules, held) = (Table::default(), Vec::new());
        let (granted, refused, expired) = (0, 0, 0);
        let mut world =
            World { locks, rules, clock, held, random: seed, granted, refused, expired };
        for _ in 0..2_000 {
            match world.below(20) {
                0..8 => world.acquire(),
                8 => world.acquire_all(),
                9..15 => world.release(),
                15 => world.force_release(),
                16..19 => {
                    let steps = world.below(4);
                    world.clock.advance(steps * SECOND / 2);
                }
                _ => drop(world.locks.sweep()),
            }
            world.compare();
        }
        let World { granted, refused, expired, .. } = world;
        assert!(granted > 200 && refused > 200 && expired > 20, "{granted} {refused} {expired}");
    }
}

impl World {
    fn below(&mut self, end: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(self.random % u64::from(end)).unwrap()
    }

    fn now(&self) -> Now {
        Now { boot: self.clock.now(), wall_micros: self.clock.wall_micros() }
    }

    fn mode(&mut self) -> Mode {
        match self.below(5) {
            0 | 1 => Mode::Exclusive,
            2 => Mode::SHARED,
            max => Mode::Shared { max: NonZeroU32::new(max - 1) },
        }
    }

    fn acquire(&mut self) {
        let mut claims = Vec::new();
        for name in KEYS {
            if self.below(3) == 0 {
                claims.push(Claim { key: key(name), mode: self.mode() });
            }
        }
        let Ok(claims) = Claims::new(claims) else { return };
        let mut keys = Keys::all([], Mode::Exclusive);
        for claim in &claims {
            keys = keys.and(claim.key.clone(), claim.mode);
        }
        self.compare_grant(claims, |locks, options| locks.try_acquire(keys, options));
    }

    /// A lock of the whole table is one of all keys.
    fn acquire_all(&mut self) {
        let claims = Claims::all(KEYS.map(key), Mode::Exclusive).unwrap();
        self.compare_grant(claims, LocalLocks::try_acquire_all);
    }

    fn compare_grant(
        &mut self,
        claims: Claims,
        acquire: impl FnOnce(&LocalLocks<Key>, &Options) -> Result<Guard<Key>, LockError>,
    ) {
        let timeout = self.below(4) * SECOND;
        let options = if timeout.is_zero() {
            Options::new().never_stale()
        } else {
            Options::new().lock_timeout(timeout)
        };
        let found = acquire(&self.locks, &options);
        let name =
            found.as_ref().map_or_else(|_| id("refused"), |guard| id(&guard.id().to_string()));
        let term = Ttl::new(timeout.max(SECOND)).unwrap();
        let request = AcquireRequest::new(name.clone(), claims.clone(), term);
        let expected = self.rules.acquire(&request, self.now()).unwrap();
        match (found, expected) {
            (Ok(guard), AcquireReply::Granted(_)) => {
                if timeout.is_zero() {
                    let endless = RenewEntry::extend(name, claims.clone(), Ttl::NEVER);
                    self.rules.renew(&RenewRequest::new(vec![endless]), self.now());
                }
                self.held.push((guard, claims));
                self.granted += 1;
            }
            (Err(LockError::Held), AcquireReply::Refused(_)) => self.refused += 1,
            (found, expected) => panic!("{claims:?}: {found:?}, but the rules say {expected:?}"),
        }
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.below(u32::try_from(self.held.len()).unwrap());
        let (guard, claims) = self.held.remove(at.try_into().unwrap());
        let (name, is_stale) = (id(&guard.id().to_string()), guard.is_stale());
        let found =
            if self.below(2) == 0 { self.locks.release(guard.keep()) } else { guard.release() };
        let entry = ReleaseEntry::new(name, claims.keys().cloned());
        let now = self.now();
        let expected = self.rules.release(&ReleaseRequest::new(vec![entry]), now).leases.remove(0);
        use leasehold_core::ReleaseOutcome as Rules;
        match (found, expected) {
            (ReleaseOutcome::Released, Rules::Released)
            | (ReleaseOutcome::NotHeld, Rules::NotHeld) => {}
            // Its guard knows the end of its term, whether or not others took the keys since.
            (ReleaseOutcome::Expired, Rules::Expired | Rules::NotHeld) if is_stale => {
                self.expired += 1;
            }
            // Without a guard, the end of the last record is the end of what is known.
            (ReleaseOutcome::NotHeld, Rules::Expired) if is_stale => {}
            (found, expected) => panic!("{found:?}, but the rules say {expected:?}"),
        }
    }

    fn force_release(&mut self) {
        let name = key(KEYS[self.below(4) as usize]);
        let locked: Vec<_> = self.locks.entries();
        let targets = locked.iter().filter(|entry| entry.key.as_ref() == Some(&name));
        let targets: Vec<_> = targets
            .map(|entry| EvictTarget::new(name.clone(), Some(id(&entry.id.to_string()))))
            .collect();
        let ended = self.locks.force_release(name).unwrap();
        assert_eq!(ended, targets.len());
        if !targets.is_empty() {
            self.rules.evict(&EvictRequest::exactly(targets, None), self.now());
        }
    }

    /// The live locks of both, key by key.
    fn compare(&self) {
        let mut found = BTreeSet::new();
        for entry in self.locks.entries().into_iter().filter(|entry| !entry.is_stale) {
            let keys = entry.key.map_or_else(|| KEYS.map(key).to_vec(), |key| vec![key]);
            let of = |key| (key, id(&entry.id.to_string()), entry.mode.is_shared());
            found.extend(keys.into_iter().map(of));
        }
        let mut expected = BTreeSet::new();
        for (key, holders) in self.rules.entries() {
            let live = holders.iter().filter(|holder| holder.is_live(self.now()));
            let of = |holder: &leasehold_core::table::Holder| {
                (key.clone(), holder.id.clone().unwrap(), holder.mode.is_shared())
            };
            expected.extend(live.map(of));
        }
        assert_eq!(found, expected);
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}
