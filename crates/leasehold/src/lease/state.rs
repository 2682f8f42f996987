use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{
    Error, Lease, LostReason, NodeReports, Note, Random, Remaining, RenewEntry, RenewOutcome, Ttl,
};
use tokio::sync::{Notify, broadcast};

use super::events::Event;
use super::ids::{Caller, IdReservation, Ownership};

/// How many events a slow reader may lag behind.
const EVENTS: usize = 64;

/// Limits how far ahead the Keeper looks for leases to renew with those that are due.
const LONGEST_SLACK: Duration = Duration::from_secs(300);

/// One lease that this process holds; its guard, the Keeper and its `lost()` futures share it.
///
/// Its state only ever changes from held to lost or released. The clock decides about loss before any reply is
/// applied, so that a reply that came too late is discarded (F4).
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// Unique in this process, growing.
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    /// This call made the grant; it was not adopted or continued.
    pub(crate) fresh: bool,
    pub(crate) policy: HoldPolicy,
    /// Keeps other requests from using its id while anything may still name it.
    pub(crate) reservation: Arc<IdReservation>,
    pub(crate) started: Duration,
    state: Mutex<State>,
    /// Made by the first who waits for a change.
    changed: OnceLock<Notify>,
    events: OnceLock<broadcast::Sender<Event>>,
}

/// The caller's options as instants and durations.
#[derive(Debug, Clone)]
pub(crate) struct HoldPolicy {
    /// The time between two renewals; `None` lets the lease end.
    pub(crate) interval: Option<Duration>,
    /// A renewal may come up to a tenth early, so that leases do not renew in step.
    pub(crate) jitter: bool,
    /// The term that each renewal requests.
    pub(crate) term: Ttl,
    /// How much longer the store keeps the lease than the holder trusts it.
    pub(crate) lock_delay: Duration,
    /// Until when the keys stay taken even if the lease ends.
    pub(crate) min_hold_until: Option<Duration>,
    /// When the hold ends, renewed or not.
    pub(crate) max_hold_until: Option<Duration>,
    pub(crate) drift: Drift,
    pub(crate) note: Note,
    /// The user's metrics label.
    pub(crate) label: Option<Arc<str>>,
    /// Who requested the lease.
    pub(crate) caller: Caller,
}

#[derive(Debug)]
struct State {
    /// `None` for ever.
    deadline: Option<Duration>,
    /// When the newest request with an applied reply was sent.
    confirmed: Duration,
    /// The latest instant until which the store may count the lease as held; `None` for ever.
    store_until: Option<Duration>,
    next_renewal: Option<Duration>,
    /// A renewal is not answered, or the last one failed.
    unconfirmed: bool,
    /// How the last one failed.
    failure: Option<Error>,
    /// What each node of a quorum reported last.
    nodes: NodeReports,
    /// Until its release takes it over.
    ownership: Option<Arc<Ownership>>,
    end: Option<End>,
}

/// The store's outcome for one renewed lease, and what each node of a quorum did.
pub(crate) type Answer = (RenewOutcome, NodeReports);

#[derive(Debug, Clone)]
enum End {
    Lost(LostReason),
    Released,
}

/// The state by the clock.
#[derive(Debug, Clone)]
pub(crate) enum HoldStatus {
    /// Held until this instant, `None` for ever.
    Held(Option<Duration>),
    /// `news` is true only for the caller that found it out.
    Lost {
        reason: LostReason,
        news: bool,
    },
    Released,
}

impl State {
    /// A request that extends the lease to `term` may act as late as `now`.
    fn may_act_by(&mut self, now: Duration, term: Ttl) {
        let end = term.duration().map(|term| now.saturating_add(term));
        self.store_until = self.store_until.zip(end).map(|(until, end)| until.max(end));
    }
}

impl HoldPolicy {
    /// The term to request now: long enough for the rest of `min_hold` (F3).
    pub(crate) fn term_at(&self, now: Duration) -> Ttl {
        let rest = self.min_hold_until.map(|until| until.saturating_sub(now)).unwrap_or_default();
        at_least(self.term, rest)
    }

    fn deadline(&self, sent: Duration, remaining: Remaining) -> Option<Duration> {
        let shorter = match remaining {
            Remaining::For(left) => Remaining::For(left.saturating_sub(self.lock_delay)),
            Remaining::Never => Remaining::Never,
        };
        let believed = self.drift.deadline(sent, shorter);
        match (believed, self.max_hold_until) {
            (Some(at), Some(max)) => Some(at.min(max)),
            (one, other) => one.or(other),
        }
    }

    fn renewal_after(&self, sent: Duration) -> Option<Duration> {
        let interval = self.interval?;
        let tenth = interval / 10;
        let early = if self.jitter { Random::seeded().up_to(tenth) } else { Duration::ZERO };
        Some(sent.saturating_add(interval).saturating_sub(early))
    }
}

impl LeaseState {
    /// A lease whose request, sent at `sent` and answered at `now`, showed `remaining` left at the store.
    pub(crate) fn new(
        lease: Lease,
        fresh: bool,
        policy: HoldPolicy,
        ownership: Arc<Ownership>,
        (sent, now): (Duration, Duration),
        remaining: Remaining,
        nodes: NodeReports,
    ) -> Arc<Self> {
        let reservation = Arc::clone(&ownership.reservation);
        reservation.set_held(true);
        let state = State {
            deadline: policy.deadline(sent, remaining),
            confirmed: sent,
            store_until: remaining.duration().map(|left| now.saturating_add(left)),
            next_renewal: policy.renewal_after(sent),
            unconfirmed: false,
            failure: None,
            nodes,
            ownership: Some(ownership),
            end: None,
        };
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            lease,
            fresh,
            policy,
            reservation,
            started: sent,
            state: Mutex::new(state),
            changed: OnceLock::new(),
            events: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the deadline with the clock; loss is sticky.
    pub(crate) fn status(&self, now: Duration) -> HoldStatus {
        let mut state = self.state();
        self.evaluate(&mut state, now)
    }

    fn evaluate(&self, state: &mut State, now: Duration) -> HoldStatus {
        match &state.end {
            Some(End::Lost(reason)) => {
                return HoldStatus::Lost { reason: reason.clone(), news: false };
            }
            Some(End::Released) => return HoldStatus::Released,
            None => {}
        }
        if state.deadline.is_none_or(|deadline| now < deadline) {
            return HoldStatus::Held(state.deadline);
        }
        let reason = if self.policy.max_hold_until.is_some_and(|max| max <= now) {
            LostReason::MaxHold
        } else if state.unconfirmed {
            LostReason::StoreUnreachable
        } else {
            LostReason::Expired
        };
        self.lose(state, reason)
    }

    fn lose(&self, state: &mut State, reason: LostReason) -> HoldStatus {
        state.end = Some(End::Lost(reason.clone()));
        state.next_renewal = None;
        self.reservation.set_held(false);
        self.emit(Event::Lost(reason.clone()));
        self.emit(Event::Stopped);
        self.notify_changed();
        HoldStatus::Lost { reason, news: true }
    }

    /// Ends the hold at the holder's request; `Held` if it was held until now.
    pub(crate) fn finish(&self, now: Duration) -> HoldStatus {
        let mut state = self.state();
        let status = self.evaluate(&mut state, now);
        if matches!(status, HoldStatus::Held(_)) {
            state.end = Some(End::Released);
            state.next_renewal = None;
            self.reservation.set_held(false);
            self.emit(Event::Stopped);
            self.notify_changed();
        }
        status
    }

    /// When the Keeper must look at it next.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let state = self.state();
        if state.end.is_some() {
            return None;
        }
        match (state.next_renewal, state.deadline) {
            (Some(renewal), Some(deadline)) => Some(renewal.min(deadline)),
            (one, other) => one.or(other),
        }
    }

    /// How early it may be renewed in one request with others: half its interval, a sixth of its TTL.
    pub(crate) fn slack(&self) -> Duration {
        (self.policy.interval.unwrap_or_default() / 2).min(LONGEST_SLACK)
    }

    /// True if a renewal is due within its slack; it then counts as being renewed.
    pub(crate) fn start_renewal(&self, now: Duration) -> bool {
        let horizon = now.saturating_add(self.slack());
        let mut state = self.state();
        let due = state.end.is_none() && state.next_renewal.is_some_and(|at| at <= horizon);
        if due {
            state.next_renewal = None;
            state.unconfirmed = true;
        }
        due
    }

    /// Makes a sent renewal that will not be answered due again.
    pub(crate) fn rearm(&self, now: Duration) {
        let mut state = self.state();
        state.may_act_by(now, self.policy.term_at(now));
        if state.end.is_none() && self.policy.interval.is_some() {
            state.next_renewal.get_or_insert(now.saturating_add(self.retry_pause()));
        }
    }

    /// The renewal to send now.
    pub(crate) fn renewal(&self, now: Duration) -> RenewEntry {
        let term = self.policy.term_at(now);
        self.state().may_act_by(now, term);
        renewal(&self.lease, &self.policy.note, term)
    }

    /// Applies the outcome of a renewal that was sent at `sent`, from the store and each of its nodes.
    pub(crate) fn apply(
        &self,
        sent: Duration,
        (outcome, nodes): Answer,
        now: Duration,
    ) -> HoldStatus {
        let mut state = self.state();
        if !nodes.is_empty() {
            state.nodes = nodes;
        }
        let before = self.evaluate(&mut state, now);
        if !matches!(before, HoldStatus::Held(_)) {
            return before;
        }
        match outcome {
            RenewOutcome::Lost(reason) => self.lose(&mut state, reason.unwrap_or(LostReason::Gone)),
            RenewOutcome::Failed(error) => {
                state.may_act_by(now, self.policy.term_at(now));
                state.unconfirmed = true;
                state.failure = Some(error.clone());
                if self.policy.interval.is_some() {
                    state.next_renewal = Some(now.saturating_add(self.retry_pause()));
                }
                self.emit(Event::Failed(error));
                before
            }
            RenewOutcome::Held(remaining) => {
                if sent < state.confirmed {
                    return before;
                }
                state.confirmed = sent;
                let until = remaining.duration().map(|left| now.saturating_add(left));
                state.store_until = state.store_until.zip(until).map(|(one, other)| one.max(other));
                state.deadline = self.policy.deadline(sent, remaining);
                state.next_renewal = self.policy.renewal_after(sent);
                state.unconfirmed = false;
                state.failure = None;
                let after = self.evaluate(&mut state, now);
                if let HoldStatus::Held(deadline) = after {
                    self.emit(Event::Renewed { remaining: left(deadline, now) });
                    self.notify_changed();
                }
                after
            }
        }
    }

    /// The pause after a failed renewal: a twelfth of the TTL with jitter, 10 ms to 1 s.
    fn retry_pause(&self) -> Duration {
        let quarter = self.policy.interval.unwrap_or_default() / 4;
        let most = quarter.clamp(Duration::from_millis(10), Duration::from_secs(1));
        most / 2 + Random::seeded().up_to(most / 2)
    }

    /// True if the clock shows that it is held. Does not act on a loss.
    pub(crate) fn is_held(&self, now: Duration) -> bool {
        let state = self.state();
        state.end.is_none() && state.deadline.is_none_or(|deadline| now < deadline)
    }

    /// The error for its loss, with the failure that caused it.
    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        let is_cause = reason == LostReason::StoreUnreachable;
        Error::lease_lost(reason, self.state().failure.clone().filter(|_| is_cause))
    }

    /// The user's metrics label.
    pub(crate) fn label(&self) -> Option<&Arc<str>> {
        self.policy.label.as_ref()
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.state().deadline
    }

    /// When the last renewal known to have succeeded was sent; `None` if there is none.
    pub(crate) fn renewed(&self) -> Option<Duration> {
        Some(self.state().confirmed).filter(|confirmed| *confirmed > self.started)
    }

    /// The latest instant until which the store may count the lease as held; `None` for ever.
    pub(crate) fn store_until(&self) -> Option<Duration> {
        self.state().store_until
    }

    /// What each node of a quorum reported last about the lease.
    pub(crate) fn nodes(&self) -> NodeReports {
        self.state().nodes.clone()
    }

    /// The deadline at which it ended, or would have ended.
    pub(crate) fn ended_at(&self) -> Duration {
        self.state().deadline.unwrap_or_default()
    }

    /// What its release takes over: its ownership, until when the store may count it, and whether a request that names
    /// it may still act.
    pub(crate) fn hand_over(&self) -> (Arc<Ownership>, Option<Duration>, bool) {
        let mut state = self.state();
        let ownership = state.ownership.take();
        let ownership = ownership.unwrap_or_else(|| Ownership::of(Arc::clone(&self.reservation)));
        (ownership, state.store_until, state.unconfirmed)
    }

    /// Notified of each change of the state. Whoever asks for it and then locks the state, to see whether it must wait,
    /// is notified or sees the change.
    pub(crate) fn changed(&self) -> &Notify {
        self.changed.get_or_init(Notify::new)
    }

    /// Notifies of a change; the state is still locked.
    fn notify_changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed.notify_waiters();
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        let state = self.state();
        let events = self.events.get_or_init(|| broadcast::Sender::new(EVENTS));
        let receiver = events.subscribe();
        match &state.end {
            Some(End::Lost(reason)) => {
                self.emit(Event::Lost(reason.clone()));
                self.emit(Event::Stopped);
            }
            Some(End::Released) => self.emit(Event::Stopped),
            None => {}
        }
        receiver
    }

    fn emit(&self, event: Event) {
        if let Some(events) = self.events.get() {
            // Having no reader is not a failure.
            events.send(event).unwrap_or_default();
        }
    }
}

/// A term that is not shorter than `rest`.
pub(crate) fn at_least(term: Ttl, rest: Duration) -> Ttl {
    match term.duration() {
        Some(shorter) if rest > shorter => Ttl::new(rest).unwrap_or(term),
        _ => term,
    }
}

/// What is left until `deadline`.
pub(crate) fn left(deadline: Option<Duration>, now: Duration) -> Remaining {
    deadline.map_or(Remaining::Never, |at| Remaining::For(at.saturating_sub(now)))
}

/// The renewal of `lease` to `term`.
pub(crate) fn renewal(lease: &Lease, note: &Note, term: Ttl) -> RenewEntry {
    let mut renewal =
        RenewEntry::extend(lease.id.clone(), lease.claims.clone(), term).with_note(note.clone());
    if let Some(group) = &lease.group {
        renewal = renewal.with_group(group.clone());
    }
    match lease.token {
        Some(token) => renewal.with_token(token),
        None => renewal,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_core::{Claims, Key, LeaseId, Mode};

    use super::*;
    use crate::lease::ids::Ids;

    const S: Duration = Duration::from_secs(1);

    /// A lease of 30 s that was requested at 100 s.
    pub(crate) fn held(interval: Option<Duration>) -> Arc<LeaseState> {
        let ttl = Ttl::new(30 * S).unwrap();
        let claims = Claims::one(Key::new("k").unwrap(), Mode::Exclusive);
        let policy = HoldPolicy {
            interval,
            jitter: false,
            term: ttl,
            lock_delay: Duration::ZERO,
            min_hold_until: None,
            max_hold_until: None,
            drift: Drift::new(0, Duration::ZERO),
            note: Note::default(),
            label: None,
            caller: Caller::current(),
        };
        let lease = Lease::new(LeaseId::mint().unwrap(), claims, ttl);
        let ids = Arc::new(Ids::default());
        let reservation =
            ids.try_reserve(&lease.id, &lease.claims, Caller::current(), 100 * S).unwrap();
        let ownership = Ownership::of(reservation);
        LeaseState::new(
            lease,
            true,
            policy,
            ownership,
            (100 * S, 100 * S),
            Remaining::For(30 * S),
            NodeReports::default(),
        )
    }

    fn extended() -> Answer {
        (RenewOutcome::Held(Remaining::For(30 * S)), NodeReports::default())
    }

    #[test]
    fn a_reply_after_the_deadline_is_discarded_even_if_nobody_looked_before() {
        let held = held(Some(10 * S));
        assert!(held.start_renewal(110 * S));
        let status = held.apply(129 * S, extended(), 130 * S);
        let lost = HoldStatus::Lost { reason: LostReason::StoreUnreachable, news: true };
        assert_eq!(format!("{status:?}"), format!("{lost:?}"));
        assert!(matches!(held.status(129 * S), HoldStatus::Lost { news: false, .. }), "sticky");
        assert_eq!(held.next_wake(), None);
    }

    #[test]
    fn a_reply_that_a_newer_one_overtook_does_not_shorten() {
        let held = held(Some(10 * S));
        assert!(
            matches!(held.apply(120 * S, extended(), 121 * S), HoldStatus::Held(Some(at)) if at == 150 * S)
        );
        assert!(
            matches!(held.apply(110 * S, extended(), 122 * S), HoldStatus::Held(Some(at)) if at == 150 * S)
        );
    }

    #[test]
    fn a_majoritys_shorter_term_is_not_the_longest_of_any_node() {
        let held = held(Some(10 * S));
        let shorter = (RenewOutcome::Held(Remaining::For(20 * S)), NodeReports::default());
        held.apply(105 * S, extended(), 105 * S);
        held.apply(110 * S, shorter, 110 * S);
        assert_eq!(held.store_until(), Some(135 * S));
    }

    #[test]
    fn a_loss_reports_whether_a_renewal_was_in_flight() {
        let idle = held(None);
        assert!(matches!(
            idle.status(130 * S),
            HoldStatus::Lost { reason: LostReason::Expired, .. }
        ));
        let failing = held(Some(10 * S));
        let error = leasehold_core::Error::unexpected("x");
        failing.apply(110 * S, (RenewOutcome::Failed(error), NodeReports::default()), 111 * S);
        let status = failing.status(130 * S);
        assert!(matches!(status, HoldStatus::Lost { reason: LostReason::StoreUnreachable, .. }));
    }

    #[test]
    fn a_released_lease_is_neither_lost_nor_renewed() {
        let held = held(Some(10 * S));
        assert!(matches!(held.finish(101 * S), HoldStatus::Held(_)));
        assert!(matches!(held.finish(101 * S), HoldStatus::Released));
        assert!(!held.start_renewal(110 * S));
        assert!(matches!(held.apply(110 * S, extended(), 111 * S), HoldStatus::Released));
        assert!(matches!(held.status(500 * S), HoldStatus::Released));
    }
}
