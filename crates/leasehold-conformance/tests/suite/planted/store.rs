//! The store around the rows, and what the suite needs of it.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use leasehold_conformance::{
    Backing, Forgets, Observation, Reports, Restarted, Result, Row, Subject, Time,
};
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Claims, Clock, EvictReply, EvictRequest,
    FencingToken, Health, Key, Level, ListReply, ListRequest, ManualClock, Mode, RefusalReason,
    ReleaseOutcome, ReleaseReply, ReleaseRequest, RenewEntry, RenewReply, RenewRequest, Store, Ttl,
    Wakeups,
};
use tokio::sync::broadcast;

use super::bug::Bug;
use super::rows::{At, Rows};

/// The features that the planted store claims to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abilities {
    All,
    /// Exclusive locks of one key with a term.
    Few,
    /// All, with tokens that the store counts and nobody raises.
    Counting,
    /// All, for two holders of a key.
    Narrow,
    /// All, with one mark in place of a counter for each key.
    Marked,
    /// All, in a format shared with others, in which records end for others after they have ended for their
    /// holders.
    Margin,
}

/// A subject with one bug, or without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planted {
    pub(crate) bug: Option<Bug>,
    pub(crate) abilities: Abilities,
}

#[derive(Debug)]
pub(crate) struct State {
    rows: Arc<Mutex<Rows>>,
    clock: ManualClock,
    freed: broadcast::Sender<Key>,
    can: Capabilities,
    /// What is refused before anything is done; a store that weakens silently refuses less.
    admits: Capabilities,
}

#[derive(Debug, Clone)]
pub(crate) struct PlantedStore(Arc<State>);

const MARGIN: Duration = Duration::from_millis(1_500);

fn all_abilities() -> Capabilities {
    let mut can = Capabilities::none("planted");
    can.shared = true;
    can.shared_limit = true;
    can.many_keys = true;
    can.never = true;
    can.keep = true;
    can.tokens = true;
    can.raise = true;
    can.notifications = true;
    can.reports_expired = true;
    can
}

/// With narrower limits, so that there are refusals.
fn few_abilities() -> Capabilities {
    let mut can = Capabilities::none("planted");
    can.min_term = Duration::from_millis(100);
    can.max_term = Duration::from_secs(7_200);
    can.max_key_bytes = 200;
    can
}

impl Planted {
    fn state(self, forget_after: Duration) -> Arc<State> {
        let mut can = match self.abilities {
            Abilities::All | Abilities::Marked => all_abilities(),
            Abilities::Few => few_abilities(),
            Abilities::Counting => {
                let mut can = all_abilities();
                can.raise = false;
                can
            }
            Abilities::Narrow => {
                let mut can = all_abilities();
                can.max_holders = NonZeroU32::new(2);
                can
            }
            Abilities::Margin => {
                let mut can = all_abilities();
                can.margin = MARGIN;
                can
            }
        };
        let mut admits = can;
        match self.bug {
            Some(Bug::LimitIsWeakenedInSilence) => can.shared_limit = false,
            Some(Bug::NeverIsWeakenedInSilence) => can.never = false,
            Some(Bug::ManyKeysAreWeakenedInSilence) => can.many_keys = false,
            _ => admits = can,
        }
        let margin = leasehold_core::term::micros_up(can.margin);
        let rows = Rows {
            rows: vec![],
            counters: [].into(),
            forget_after,
            marked: self.abilities == Abilities::Marked,
            margin,
            max_holders: can.max_holders,
            bug: self.bug,
        };
        Arc::new(State {
            rows: Arc::new(Mutex::new(rows)),
            clock: ManualClock::new(),
            freed: broadcast::Sender::new(64),
            can,
            admits,
        })
    }
}

impl Subject for Planted {
    type Backing = PlantedStore;

    fn name(&self) -> &'static str {
        "planted"
    }

    async fn open(&self) -> Result<PlantedStore> {
        Ok(PlantedStore(self.state(leasehold_core::table::FORGET_AFTER)))
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<PlantedStore>> {
        if self.abilities == Abilities::Marked {
            return Ok(Forgets::Never);
        }
        Ok(Forgets::After(PlantedStore(self.state(forget_after))))
    }

    fn reports(&self) -> Reports {
        match self.abilities {
            Abilities::Few => Reports::nothing(),
            _ => Reports::all(),
        }
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        20_000
    }
}

impl Backing for PlantedStore {
    type Store = Self;

    async fn client(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn observe(&self) -> Result<Observation> {
        let (rows, at) = (self.rows(), self.at());
        let seen = rows.rows.iter().map(|stored| {
            let mode = if stored.shared { Mode::SHARED } else { Mode::Exclusive };
            let live = rows.excludes(stored, at);
            let mut row = Row::new(stored.key.clone(), stored.id.clone(), mode, live);
            row.token = FencingToken::new(stored.token).ok();
            row.group.clone_from(&stored.group);
            row.note = stored.note.clone();
            row
        });
        if rows.marked {
            return Ok(Observation::new(seen.collect(), []).with_mark(rows.mark()));
        }
        Ok(Observation::new(seen.collect(), rows.counters.clone()))
    }

    fn time(&self) -> Time {
        Time::Manual(self.0.clock.clone())
    }

    async fn restart(&self) -> Result<Restarted> {
        let mut rows = self.rows();
        if rows.bug == Some(Bug::CounterGoesWithARestart) {
            rows.counters.clear();
        }
        Ok(Restarted::Persisted)
    }
}

impl PlantedStore {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self) -> At {
        let clock = &self.0.clock;
        let boot = leasehold_core::term::micros_down(clock.now());
        At { boot, wall: clock.wall_micros() }
    }

    fn has(&self, bug: Bug) -> bool {
        self.rows().bug == Some(bug)
    }

    fn wake<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            self.0.freed.send(key.clone()).unwrap_or_default();
        }
    }

    /// Removes from a reply what the store does not have.
    fn without_tokens(&self, mut acquired: AcquireReply) -> AcquireReply {
        if self.0.can.tokens {
            return acquired;
        }
        match &mut acquired {
            AcquireReply::Granted(granted) => granted.token = None,
            AcquireReply::Refused(refused) => {
                if let RefusalReason::Held(Some(holder)) = &mut refused.why {
                    holder.token = None;
                }
            }
        }
        acquired
    }
}

impl Store for PlantedStore {
    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn check(&self) -> leasehold_core::Result<Health> {
        let mut health = Health::new(if self.0.can.tokens { Level::Fenced } else { Level::Lease });
        health.durable = true;
        Ok(health)
    }

    async fn prepare(&self) -> leasehold_core::Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> leasehold_core::Result<AcquireReply> {
        self.0.admits.admit(request)?;
        if self.has(Bug::LooksAndThenTakes) {
            let refused = self.rows().refusal(request, self.at());
            tokio::task::yield_now().await;
            if refused.is_none() {
                let mut rows = self.rows();
                let others = std::mem::take(&mut rows.rows);
                let granted = rows.acquire(request, self.at());
                rows.rows.extend(others);
                return granted;
            }
        }
        if self.has(Bug::TokenIsDrawnBeforeTheKeyIsWon) {
            let token = self.rows().draw(request, self.at());
            tokio::task::yield_now().await;
            let mut rows = self.rows();
            let acquired = rows.acquire(request, self.at())?;
            let AcquireReply::Granted(mut granted) = acquired else { return Ok(acquired) };
            if granted.fresh {
                granted.token = Some(FencingToken::new(token)?);
                let own = rows.rows.iter_mut().filter(|row| row.id.as_ref() == Some(request.id()));
                own.for_each(|row| row.token = token);
            }
            return Ok(AcquireReply::Granted(granted));
        }
        let is_free = self.rows().refusal(request, self.at()).is_none();
        if self.has(Bug::WritesKeyByKey) && request.claims().len() > 1 && is_free {
            for claim in request.claims() {
                let claims = Claims::one(claim.key.clone(), claim.mode);
                let one = AcquireRequest::new(request.id().clone(), claims, request.term());
                self.rows().acquire(&one, self.at())?;
                tokio::task::yield_now().await;
            }
        }
        let acquired = self.rows().acquire(request, self.at())?;
        Ok(self.without_tokens(acquired))
    }

    async fn renew(&self, request: &RenewRequest) -> leasehold_core::Result<RenewReply> {
        if !self.has(Bug::EntriesAreNotCounted) {
            self.0.admits.admit(request)?;
        }
        let leases = request.leases().iter().map(|lease| {
            let lease = match lease.term() {
                Ttl::NEVER if self.has(Bug::NeverIsWeakenedInSilence) => {
                    let longest = Ttl::new(Ttl::MAX).expect("the longest term is a term");
                    RenewEntry::extend(lease.id().clone(), lease.claims().clone(), longest)
                }
                _ => lease.clone(),
            };
            self.rows().renew(&lease, self.at())
        });
        Ok(RenewReply::new(leases.collect()))
    }

    async fn release(&self, request: &ReleaseRequest) -> leasehold_core::Result<ReleaseReply> {
        self.0.admits.admit(request)?;
        let leases = request.leases().iter().map(|lease| {
            let released = self.rows().release(lease, self.at());
            if lease.wakes() || self.has(Bug::EveryReleaseWakes) {
                self.wake(lease.keys().iter());
            }
            match released {
                ReleaseOutcome::Expired if !self.0.can.reports_expired => ReleaseOutcome::NotHeld,
                released => released,
            }
        });
        Ok(ReleaseReply::new(leases.collect()))
    }

    async fn list(&self, request: &ListRequest) -> leasehold_core::Result<ListReply> {
        self.0.admits.admit(request)?;
        let mut page = self.rows().list(request, self.at())?;
        if !self.0.can.tokens {
            page.records.iter_mut().for_each(|record| record.token = None);
        }
        Ok(page)
    }

    async fn evict(&self, request: &EvictRequest) -> leasehold_core::Result<EvictReply> {
        self.0.admits.admit(request)?;
        if self.has(Bug::LooksAndThenPurges) {
            let over = {
                let (rows, at) = (self.rows(), self.at());
                let over = rows.rows.iter().filter(|row| rows.over(row, at));
                over.map(|row| row.key.clone()).collect::<Vec<_>>()
            };
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.rows().rows.retain(|row| !over.contains(&row.key));
            return Ok(EvictReply::new(vec![], 0, false));
        }
        let evicted = self.rows().evict(request, self.at());
        if !self.has(Bug::EvictionDoesNotWake) {
            self.wake(evicted.removed.iter().map(|target| &target.key));
        }
        Ok(evicted)
    }

    async fn subscribe(&self, keys: &[Key]) -> leasehold_core::Result<Wakeups> {
        if !self.0.can.notifications {
            return Ok(Wakeups::none());
        }
        let (freed, keys) = (self.0.freed.subscribe(), keys.to_vec());
        Ok(Wakeups::new(stream::unfold((freed, keys), |(mut freed, keys)| async move {
            loop {
                let key = freed.recv().await.ok()?;
                if keys.contains(&key) {
                    return Some((key, (freed, keys)));
                }
            }
        })))
    }
}
