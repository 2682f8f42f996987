use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{
    Error, FencingToken, GroupName, Key, LeaseId, LostReason, Mode, Note, Record, RecordTerm,
    RefusalReason, Remaining, Result, Ttl,
};
use tokio::sync::watch;

use super::event::LeadershipEvent;
use super::leader::{identity, leads};
use super::leadership::Leadership;
use super::log::Log;
use crate::acquire::attempt::AttemptOutcome;
use crate::acquire::options::AttemptObserver;
use crate::acquire::spec::LockSpec;
use crate::lease::ids::Ownership;
use crate::lease::state::HoldStatus;
use crate::locker::Locker;
use crate::telemetry;

/// The state of a candidate, without a request to the store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CandidateStatus {
    /// It leads, by its own clock.
    pub leads: bool,
    /// Its token while it leads, where the store has them.
    pub token: Option<FencingToken>,
    /// The leader: itself, or the holder that refused its last try, unless that holder's term is over or the candidate
    /// was paused since. `None` if it knows no leader; [`Candidate::leader`](crate::Candidate::leader) queries the store.
    pub leader: Option<Record>,
}

/// What a spawned candidate and its handles share.
pub(super) struct CandidateState {
    pub(super) locks: Locker,
    pub(super) id: GroupName,
    pub(super) ttl: Ttl,
    name: Key,
    note: Note,
    view: watch::Sender<View>,
    own: Mutex<Own>,
}

/// The leases that it requested.
#[derive(Default)]
struct Own {
    /// Its last leadership: a node of a quorum may list it after its release was answered.
    led: Option<LeaseId>,
    /// What it requested and may still hold: a store may name one of these in a refusal.
    taken: Vec<(LeaseId, Weak<Ownership>)>,
}

/// What its handles watch.
#[derive(Default)]
pub(super) struct View {
    pub(super) leadership: Option<Arc<Leadership>>,
    /// A handle has requested a pause.
    pub(super) paused: bool,
    /// It is paused: it holds nothing and no request is open.
    pub(super) rests: bool,
    pub(super) ended: Option<Result<()>>,
    /// The holder that its last try met; `None` if unknown since it began to campaign or last led.
    other: Option<Seen>,
    iterations: u64,
    events: Log<LeadershipEvent>,
    /// For each round with a known outcome, whether it leads.
    rounds: Log<bool>,
}

/// Reads one of a candidate's logs from a position on.
pub(super) struct Follower<T> {
    view: watch::Receiver<View>,
    log: fn(&View) -> &Log<T>,
    position: u64,
}

impl<T: Clone> Follower<T> {
    /// The next entry; `None` when the candidate has ended and nothing is left.
    ///
    /// # Cancel safety
    /// May be dropped; nothing is missed.
    pub(super) async fn next(&mut self) -> Option<T> {
        loop {
            {
                let view = self.view.borrow_and_update();
                let next = (self.log)(&view).next(&mut self.position);
                if next.is_some() || view.ended.is_some() {
                    return next;
                }
            }
            self.view.changed().await.ok()?;
        }
    }
}

/// A holder of the name that was seen: it leads, or only keeps the name taken.
struct Seen {
    holder: Record,
    at: Duration,
}

impl Seen {
    /// The holder until its term ends; after that the holder is unknown.
    fn aged(&self, now: Duration) -> Option<Record> {
        let mut holder = self.holder.clone();
        let since = now.saturating_sub(self.at);
        if let Remaining::For(left) = holder.remaining() {
            let left = left.checked_sub(since).filter(|left| !left.is_zero())?;
            holder.term = RecordTerm::Live(Remaining::For(left));
        }
        holder.age = holder.age.map(|age| age.saturating_add(since));
        holder.renewed = holder.renewed.map(|renewed| renewed.saturating_add(since));
        Some(holder)
    }
}

impl CandidateState {
    pub(super) fn new(locks: Locker, spec: &LockSpec) -> Result<Self> {
        let unnamed = || Error::unexpected("a candidate has no id");
        Ok(Self {
            locks,
            id: spec.group.clone().ok_or_else(unnamed)?,
            ttl: spec.ttl,
            name: spec.claims.first().key.clone(),
            note: spec.policy.note.clone(),
            view: watch::Sender::default(),
            own: Mutex::default(),
        })
    }

    pub(super) fn name(&self) -> &Key {
        &self.name
    }

    pub(super) fn now(&self) -> Duration {
        self.locks.0.keeper.clock.now()
    }

    pub(super) fn iterations(&self) -> u64 {
        self.view().iterations
    }

    pub(super) fn view(&self) -> watch::Ref<'_, View> {
        self.view.borrow()
    }

    /// Ends with what `pick` returns, now or after a change.
    pub(super) async fn until<T>(&self, mut pick: impl FnMut(&View) -> Option<T>) -> T {
        let mut view = self.view.subscribe();
        loop {
            if let Some(found) = pick(&view.borrow_and_update()) {
                return found;
            }
            // The sender lives as long as this does.
            let changed = view.changed().await.is_ok();
            debug_assert!(changed, "the sender is ours");
        }
    }

    /// Requests a pause or its end; fails if it has ended.
    pub(super) fn wish(&self, paused: bool) -> Result<()> {
        self.running()?;
        self.view.send_if_modified(|view| std::mem::replace(&mut view.paused, paused) != paused);
        Ok(())
    }

    /// Notes that it is paused or not; what it knew of others is then out of date.
    pub(super) fn rests(&self, rests: bool) {
        self.view.send_modify(|view| {
            view.rests = rests;
            view.other = None;
        });
    }

    /// Fails if it has ended.
    pub(super) fn running(&self) -> Result<()> {
        self.running_in(&self.view())
    }

    pub(super) fn running_in(&self, view: &View) -> Result<()> {
        match &view.ended {
            None => Ok(()),
            Some(Ok(())) => Err(self.closed()),
            Some(Err(error)) => Err(self.closed().with_source(error.clone())),
        }
    }

    fn closed(&self) -> Error {
        Error::closed(format!(
            "the candidate {} for {:?} no longer runs; spawn another",
            self.id, self.name
        ))
    }

    /// Its state, without a request.
    pub(super) fn status(&self) -> CandidateStatus {
        let now = self.now();
        let view = self.view();
        match view.leadership.as_ref().filter(|leadership| leadership.is_leader()) {
            Some(leadership) => CandidateStatus {
                leads: true,
                token: leadership.token(),
                leader: Some(self.own_record(leadership, now)),
            },
            None => {
                let other = view.other.as_ref().and_then(|seen| seen.aged(now));
                CandidateStatus { leads: false, token: None, leader: other.filter(leads) }
            }
        }
    }

    fn own_record(&self, leadership: &Leadership, now: Duration) -> Record {
        let guard = leadership.guard();
        let term = RecordTerm::Live(guard.remaining());
        let mut record = Record::new(self.name.clone(), Mode::Exclusive, term);
        record.id = Some(guard.lease().id.clone());
        record.token = leadership.token();
        record.group = Some(self.id.clone());
        record.note = self.note.clone();
        let since = |at| now.saturating_sub(at);
        record.age = Some(since(guard.held().started));
        record.renewed = guard.held().renewed().map(since);
        record
    }

    /// Its present state, if known, and its events from now on; no events if it has ended.
    pub(super) fn transitions(
        &self,
    ) -> (Option<LeadershipEvent>, Option<Follower<LeadershipEvent>>) {
        let view = self.view();
        if let Some(ended) = &view.ended {
            return (ended.clone().err().map(LeadershipEvent::Failed), None);
        }
        let known = match (&view.leadership, &view.other) {
            (Some(leadership), _) if leadership.is_leader() => {
                Some(LeadershipEvent::Gained { token: leadership.token() })
            }
            // It has ended; the next event reports it.
            (Some(_), _) | (None, None) => None,
            (None, Some(seen)) => seen.aged(self.now()).map(|holder| changed(&holder)),
        };
        (known, Some(self.follow(&view, |view| &view.events)))
    }

    /// Its rounds from now on.
    pub(super) fn rounds(&self) -> Follower<bool> {
        self.follow(&self.view(), |view| &view.rounds)
    }

    fn follow<T: Clone>(&self, view: &View, log: fn(&View) -> &Log<T>) -> Follower<T> {
        Follower { view: self.view.subscribe(), log, position: log(view).end() }
    }

    /// A round has ended: it leads, another candidate does, or the leader is unknown.
    pub(super) fn round(&self, leads: Option<bool>) {
        self.view.send_modify(|view| {
            view.iterations += 1;
            leads.into_iter().for_each(|leads| view.rounds.push(leads));
        });
    }

    /// What may still be held or requested.
    pub(super) fn taken(&self) -> Vec<Weak<Ownership>> {
        self.own().taken.iter().map(|(_, ownership)| Weak::clone(ownership)).collect()
    }

    /// True for a lease of its own, which the store may hold after it was lost or abandoned.
    fn is_own(&self, holder: &Record) -> bool {
        let own = self.own();
        let mut ids = own.taken.iter().map(|(id, _)| id).chain(&own.led);
        holder.id.as_ref().is_some_and(|holder| ids.any(|id| id == holder))
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, holder: &Record) {
        let now = self.now();
        let who = |holder: &Record| Some(holder).filter(|it| leads(it)).map(identity);
        self.view.send_modify(|view| {
            let before = view.other.replace(Seen { holder: holder.clone(), at: now });
            let known = before.as_ref().and_then(|before| before.aged(now));
            if before.is_none_or(|before| who(&before.holder) != who(holder)) {
                self.announce(view, changed(holder));
            } else if known.is_none() {
                // Not a change, but readers who came since the term ended do not know the leader.
                view.events.push(changed(holder));
            }
        });
    }

    pub(super) fn gained(&self, leadership: &Arc<Leadership>) {
        self.own().led = Some(leadership.guard().lease().id.clone());
        self.view.send_modify(|view| {
            view.leadership = Some(Arc::clone(leadership));
            view.other = None;
            self.announce(view, LeadershipEvent::Gained { token: leadership.token() });
            view.rounds.push(true);
        });
    }

    /// Its leadership has ended; true if it must let others try first: it resigned, or led for as long as it may.
    pub(super) fn over(&self, leadership: &Leadership) -> bool {
        let lost: Option<LostReason> = match leadership.guard().status() {
            HoldStatus::Lost { reason, .. } => Some(reason),
            HoldStatus::Released | HoldStatus::Held(_) => None,
        };
        let yields = matches!(lost, None | Some(LostReason::MaxHold));
        self.view.send_modify(|view| {
            view.leadership = None;
            self.announce(view, lost.map_or(LeadershipEvent::Resigned, LeadershipEvent::Lost));
        });
        yields
    }

    /// Logs a failure after which it campaigns again.
    pub(super) fn campaign_failed(&self, error: &Error) {
        telemetry::campaign_failed(&self.name, &self.id, error);
    }

    /// Sends the event to readers and to the log.
    fn announce(&self, view: &mut View, event: LeadershipEvent) {
        let what = match &event {
            LeadershipEvent::Gained { .. } => "gained",
            LeadershipEvent::Lost(_) => "lost",
            LeadershipEvent::Resigned => "resigned",
            LeadershipEvent::Changed(_) => "changed",
            LeadershipEvent::Unknown(_) => "unknown",
            LeadershipEvent::Failed(_) => "failed",
        };
        telemetry::leadership(&self.name, &self.id, what);
        view.events.push(event);
    }

    /// No event follows.
    pub(super) fn end(&self, outcome: Result<()>) {
        self.view.send_if_modified(|view| {
            if view.ended.is_some() {
                return false;
            }
            view.leadership = None;
            if let Err(error) = &outcome {
                self.announce(view, LeadershipEvent::Failed(error.clone()));
            }
            view.ended = Some(outcome);
            true
        });
    }
}

impl AttemptObserver for CandidateState {
    fn tries(&self, id: &LeaseId, ownership: &Arc<Ownership>) {
        let taken = &mut self.own().taken;
        taken.retain(|(_, ownership)| ownership.strong_count() > 0);
        taken.push((id.clone(), Arc::downgrade(ownership)));
    }

    fn tried(&self, tried: &AttemptOutcome) {
        match tried {
            // It leads when its guard is handed out, not before.
            AttemptOutcome::Granted { .. } | AttemptOutcome::Failed(_) => self.round(None),
            AttemptOutcome::Refused(refused) => match &refused.why {
                // The leader after it, if any, is unknown.
                RefusalReason::Held(Some(holder)) if leads(holder) && self.is_own(holder) => {
                    self.view.send_modify(|view| view.other = None);
                    self.round(None);
                }
                RefusalReason::Held(Some(holder)) => {
                    self.saw(holder);
                    self.round(leads(holder).then_some(false));
                }
                // The store cannot name the leader.
                RefusalReason::Held(None) => self.round(Some(false)),
                RefusalReason::Busy | RefusalReason::Queued => self.round(None),
            },
        }
    }
}

/// `holder` leads, or keeps the name taken without leading.
fn changed(holder: &Record) -> LeadershipEvent {
    LeadershipEvent::Changed(Some(holder).filter(|it| leads(it)).cloned().map(Box::new))
}
