use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{Backoff, Key, Random, Record, Remaining, Result, Store, Wakeups};

use super::event::LeadershipEvent;
use super::leader::{Identity, identity, leader_of};
use crate::acquire::options::Pauses;
use crate::acquire::poll::{LONGEST_PAUSE, pushed_poll, usual_backoff};
use crate::locker::Locker;
use crate::telemetry;

/// Watches the leader without being a candidate.
pub(super) struct Observer {
    locks: Locker,
    name: Key,
    own_backoff: bool,
    backoff: Box<dyn Backoff>,
    random: Random,
    wakeups: Option<Wakeups>,
    /// The leader at the last look; `None` before the first, and while the store does not answer.
    seen: Option<Option<Identity>>,
    /// It was reported that the store does not answer.
    is_told: bool,
    /// Pauses since the last change.
    pauses: u32,
    /// When to look next; stored, so that a caller who drops `next` again and again does not put it off.
    due: Duration,
    ended: bool,
}

impl Observer {
    pub(super) fn new(locks: Locker, name: Key, backoff: Option<Pauses>) -> Self {
        Self {
            locks,
            name,
            own_backoff: backoff.is_some(),
            backoff: match backoff {
                Some(own) => Box::new(own),
                None => Box::new(usual_backoff(LONGEST_PAUSE)),
            },
            random: Random::seeded(),
            wakeups: None,
            seen: None,
            is_told: false,
            pauses: 0,
            due: Duration::ZERO,
            ended: false,
        }
    }

    /// Ends at the next change; `None` when no more can come.
    ///
    /// # Cancel safety
    /// No change is lost: each look compares with the last.
    pub(super) async fn next(&mut self) -> Option<LeadershipEvent> {
        while !self.ended {
            self.pause().await;
            match self.look().await {
                Ok(leader) => {
                    let now = self.locks.0.keeper.clock.now();
                    self.is_told = false;
                    let seen = Some(leader.as_ref().map(identity));
                    let news = self.seen != seen;
                    if news {
                        self.seen = seen;
                        self.pauses = 0;
                    }
                    self.plan(now, leader.as_ref());
                    if news {
                        return Some(LeadershipEvent::Changed(leader.map(Box::new)));
                    }
                }
                // C10: a store that does not answer shows nothing about the leader.
                Err(error) if error.is_retryable() => {
                    self.plan(self.locks.0.keeper.clock.now(), None);
                    self.seen = None;
                    if !std::mem::replace(&mut self.is_told, true) {
                        return Some(LeadershipEvent::Unknown(error));
                    }
                }
                Err(error) => {
                    self.ended = true;
                    return Some(LeadershipEvent::Failed(error));
                }
            }
        }
        None
    }

    /// Subscribes before it looks, so that no change falls between the two (C12).
    async fn look(&mut self) -> Result<Option<Record>> {
        let keeper = &self.locks.0.keeper;
        if keeper.can.notifications && self.wakeups.is_none() {
            let subscribing = keeper.store.subscribe(std::slice::from_ref(&self.name));
            match keeper.limited("subscribe", subscribing).await {
                Ok(wakeups) => self.wakeups = Some(wakeups),
                Err(error) => telemetry::no_wakeups(&error),
            }
        }
        leader_of(&self.locks, &self.name).await
    }

    /// Decides when to look next: at the end of the leader's term at the latest.
    fn plan(&mut self, now: Duration, leader: Option<&Record>) {
        // No store notifies of a new leader: while nobody leads, poll.
        let pause = if self.wakeups.is_some() && !self.own_backoff && leader.is_some() {
            Some(pushed_poll(&mut self.random))
        } else {
            let retry = self.pauses;
            self.pauses = self.pauses.saturating_add(1);
            self.backoff.next(retry)
        };
        let Some(pause) = pause else {
            self.ended = true;
            return;
        };
        let pause = match leader.map(Record::remaining) {
            Some(Remaining::For(left)) => pause.min(left),
            Some(Remaining::Never) | None => pause,
        };
        self.due = now.saturating_add(pause);
    }

    async fn pause(&mut self) {
        let due = self.locks.0.keeper.clock.sleep_until(self.due);
        match &mut self.wakeups {
            Some(wakeups) => tokio::select! {
                biased;
                _ = wakeups.next() => {
                    // One look answers every hint that has arrived.
                    while wakeups.next().now_or_never().is_some() {}
                    self.due = Duration::ZERO;
                }
                () = due => {}
            },
            None => due.await,
        }
        // A pause of zero must let other tasks run.
        tokio::task::yield_now().await;
    }
}
