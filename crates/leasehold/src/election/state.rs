use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{
    Error, FencingToken, GroupName, Key, LeaseId, LostReason, Mode, Note, Record, RecordTerm,
    RefusalReason, Remaining, Result, Ttl,
};
use tokio::sync::{broadcast, watch};

use super::event::LeadershipEvent;
use super::events::{LAG, LeadershipEvents};
use super::leader::{identity, leads};
use super::leadership::Leadership;
use crate::acquire::attempt::AttemptOutcome;
use crate::acquire::options::AttemptObserver;
use crate::acquire::spec::LockSpec;
use crate::lease::ids::Ownership;
use crate::lease::state::HoldStatus;
use crate::locker::Locker;

/// Where a candidate stands, as it knows without asking anybody.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CandidateStatus {
    /// It leads, by its own clock.
    pub leads: bool,
    /// Its token while it leads, where the store has them.
    pub token: Option<FencingToken>,
    /// Who leads: itself, or who its last try was refused for, unless that one's term is over or it was paused
    /// since. `None` if it knows of nobody; [`Candidate::leader`](crate::Candidate::leader) asks.
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
    iterations: AtomicU64,
    /// Sent while `view` is locked for writing, so that who subscribes while it reads misses nothing.
    transitions: broadcast::Sender<Option<LeadershipEvent>>,
    /// Somebody listens who was not told who leads, because that was not known: the next sight is news.
    unknowing: AtomicBool,
    rounds: broadcast::Sender<Option<bool>>,
}

/// The leases that it asked for.
#[derive(Default)]
struct Own {
    /// What it led with last: a node of a quorum may show it after its release was answered.
    led: Option<LeaseId>,
    /// What it asked for and may still hold: a store may say that it refused for one of these.
    taken: Vec<(LeaseId, Weak<Ownership>)>,
}

/// Where it stands.
#[derive(Default)]
pub(super) struct View {
    pub(super) leadership: Option<Arc<Leadership>>,
    /// It shall be paused.
    pub(super) paused: bool,
    /// It is paused: nothing is held or asked for.
    pub(super) rests: bool,
    pub(super) ended: Option<Result<()>>,
    /// For whom its last try was refused; `None` if that is not known since it stands or last led.
    other: Option<Seen>,
}

/// A sight of another holder of the name, who leads or only keeps others from leading.
struct Seen {
    holder: Record,
    at: Duration,
}

impl Seen {
    /// The holder, as long as its term is not over; who holds the name then is not known.
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
            iterations: AtomicU64::new(0),
            transitions: broadcast::Sender::new(LAG),
            unknowing: AtomicBool::new(false),
            rounds: broadcast::Sender::new(LAG),
        })
    }

    pub(super) fn name(&self) -> &Key {
        &self.name
    }

    pub(super) fn now(&self) -> Duration {
        self.locks.0.keeper.clock.now()
    }

    pub(super) fn iterations(&self) -> u64 {
        self.iterations.load(Ordering::Relaxed)
    }

    pub(super) fn view(&self) -> watch::Ref<'_, View> {
        self.view.borrow()
    }

    /// Ends with what `pick` finds, now or after a change.
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

    /// Wishes it paused or not; fails if it has ended.
    pub(super) fn wish(&self, paused: bool) -> Result<()> {
        self.running()?;
        self.view.send_if_modified(|view| std::mem::replace(&mut view.paused, paused) != paused);
        Ok(())
    }

    /// From now on it is paused or not; what it knew of others is old by then.
    pub(super) fn rests(&self, rests: bool) {
        self.view.send_modify(|view| {
            view.rests = rests;
            view.other = None;
        });
    }

    /// Fails unless it stands, leads or is paused.
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
            "the candidate {} for {:?} is not running any more; spawn another",
            self.id, self.name
        ))
    }

    /// Where it stands, without asking anybody.
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

    /// Its transitions from now on, and where it stands now.
    pub(super) fn transitions(&self) -> LeadershipEvents {
        let view = self.view();
        if let Some(ended) = &view.ended {
            return LeadershipEvents::of_candidate(
                ended.clone().err().map(LeadershipEvent::Failed),
                None,
            );
        }
        let receiver = self.transitions.subscribe();
        let known = match (&view.leadership, &view.other) {
            (Some(leadership), _) if leadership.is_leader() => {
                Some(LeadershipEvent::Gained { token: leadership.token() })
            }
            // It has ended, which is about to be told.
            (Some(_), _) | (None, None) => None,
            (None, Some(seen)) => seen.aged(self.now()).map(|holder| changed(&holder)),
        };
        if known.is_none() {
            self.unknowing.store(true, Ordering::Relaxed);
        }
        LeadershipEvents::of_candidate(known, Some(receiver))
    }

    /// Its rounds from now on; `None` if it has ended.
    pub(super) fn rounds(&self) -> Option<broadcast::Receiver<Option<bool>>> {
        let view = self.view();
        view.ended.is_none().then(|| self.rounds.subscribe())
    }

    /// A round is over: it leads, somebody else does, or nobody can tell.
    pub(super) fn round(&self, leads: Option<bool>) {
        self.iterations.fetch_add(1, Ordering::Relaxed);
        if let Some(leads) = leads {
            tell(&self.rounds, Some(leads));
        }
    }

    /// What may not be given back yet.
    pub(super) fn taken(&self) -> Vec<Weak<Ownership>> {
        self.own().taken.iter().map(|(_, ownership)| Weak::clone(ownership)).collect()
    }

    /// True of a lease of its own, which the store may hold after it was lost or abandoned.
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
        self.view.send_modify(|view| {
            let who = |holder: &Record| Some(holder).filter(|it| leads(it)).map(identity);
            let before = view.other.replace(Seen { holder: holder.clone(), at: now });
            let same = before.is_some_and(|before| who(&before.holder) == who(holder));
            if self.unknowing.swap(false, Ordering::Relaxed) || !same {
                self.announce(changed(holder));
            }
        });
    }

    pub(super) fn gained(&self, leadership: &Arc<Leadership>) {
        self.own().led = Some(leadership.guard().lease().id.clone());
        self.view.send_modify(|view| {
            view.leadership = Some(Arc::clone(leadership));
            view.other = None;
            self.announce(LeadershipEvent::Gained { token: leadership.token() });
        });
        tell(&self.rounds, Some(true));
    }

    /// Its leadership has ended; true if it shall let others try first: it resigned, or has led for long enough.
    pub(super) fn over(&self, leadership: &Leadership) -> bool {
        let lost: Option<LostReason> = match leadership.guard().status() {
            HoldStatus::Lost { reason, .. } => Some(reason),
            HoldStatus::Released | HoldStatus::Held(_) => None,
        };
        let yields = matches!(lost, None | Some(LostReason::MaxHold));
        self.view.send_modify(|view| {
            view.leadership = None;
            self.announce(lost.map_or(LeadershipEvent::Resigned, LeadershipEvent::Lost));
        });
        yields
    }

    /// Says so to whoever listens, and to the log.
    fn announce(&self, event: LeadershipEvent) {
        let what = match &event {
            LeadershipEvent::Gained { .. } => "gained",
            LeadershipEvent::Lost(_) => "lost",
            LeadershipEvent::Resigned => "resigned",
            LeadershipEvent::Changed(_) => "changed",
            LeadershipEvent::Failed(_) => "failed",
        };
        tracing::info!(election = %self.name, candidate = %self.id, "leadership {what}");
        tell(&self.transitions, Some(event));
    }

    /// Nothing follows.
    pub(super) fn end(&self, outcome: Result<()>) {
        self.view.send_if_modified(|view| {
            if view.ended.is_some() {
                return false;
            }
            view.leadership = None;
            if let Err(error) = &outcome {
                self.announce(LeadershipEvent::Failed(error.clone()));
            }
            tell(&self.transitions, None);
            tell(&self.rounds, None);
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
            // It leads when its guard is handed out, and not before.
            AttemptOutcome::Granted { .. } | AttemptOutcome::Failed(_) => self.round(None),
            AttemptOutcome::Refused(refused) => match &refused.why {
                // Who leads after it, if anybody, is not known.
                RefusalReason::Held(Some(holder)) if leads(holder) && self.is_own(holder) => {
                    self.view.send_modify(|view| view.other = None);
                    self.round(None);
                }
                RefusalReason::Held(Some(holder)) => {
                    self.saw(holder);
                    self.round(leads(holder).then_some(false));
                }
                // The store cannot tell who leads.
                RefusalReason::Held(None) => self.round(Some(false)),
                RefusalReason::Busy | RefusalReason::Queued => self.round(None),
            },
        }
    }
}

/// `holder` leads, or it keeps the name and nobody leads.
fn changed(holder: &Record) -> LeadershipEvent {
    LeadershipEvent::Changed(Some(holder).filter(|it| leads(it)).cloned().map(Box::new))
}

fn tell<T>(listeners: &broadcast::Sender<T>, news: T) {
    // Nobody listening is no failure.
    listeners.send(news).map(drop).unwrap_or_default();
}
