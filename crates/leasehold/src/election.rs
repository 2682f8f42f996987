//! Leader election: of many candidates for a name, one leads, by an exclusive lock of a [`Locker`].

mod candidate;
mod event;
mod events;
mod leader;
mod leadership;
mod log;
mod observer;
mod state;
mod task;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Backoff, Error, GroupName, Key, LeaseId, Level, Record, Result, Ttl, Wait, WaitReport,
};
use tokio::runtime::Handle;

pub use self::candidate::Candidate;
pub use self::event::LeadershipEvent;
pub use self::events::LeadershipEvents;
use self::leader::leader_of;
pub use self::leadership::Leadership;
use self::observer::Observer;
use self::state::CandidateState;
pub use self::state::CandidateStatus;
use self::task::Ending;
use crate::acquire::options::{LockTarget, Pauses};
use crate::acquire::request::LockRequest;
use crate::guard::Guard;
use crate::locker::Locker;

/// Builder of one candidate for one name: [`campaign`](Election::campaign) once, or [`spawn`](Election::spawn) it for
/// good. Made by [`Locker::election`].
///
/// The leader holds the exclusive lock whose key is the name, on a lease that renews itself. So at most one candidate
/// leads by its own clock (on a store of level L1), and its [`token`](Leadership::token) is larger than that of every
/// earlier leader. Everything about a [`Guard`] applies: a leader that cannot renew steps down at its own deadline,
/// without any message from the store.
///
/// A name has at most one candidate per [`Locker`] and its clones; a second one is refused before anything is sent. Two
/// `Locker`s of one process are independent: the store excludes their candidates like those of two processes. The order
/// of succession is not defined: the candidate whose request is first when the name is free is elected.
///
/// The builder keeps the first wrong argument, which is the error of the first call that needs it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
/// use std::time::Duration;
///
/// let election = locks.election("scheduler").candidate_name("node-3").ttl(Duration::from_secs(10));
/// let leadership = election.campaign().await?;
/// assert!(leadership.is_leader());
/// leadership.run(async { /* work; dropped if the leadership is lost */ }).await?;
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "nobody stands until campaign() or spawn() is called"]
pub struct Election {
    locks: Locker,
    name: Result<Key>,
    backoff: Option<Pauses>,
    campaign: LockRequest<Guard>,
}

impl Locker {
    /// Describes a candidate for `name`, which is the key that its leader locks. Nothing is sent.
    pub fn election<K: TryInto<Key, Error: Into<Error>>>(&self, name: K) -> Election {
        let name = name.try_into().map_err(Into::into);
        let what = name.clone().map(LockTarget::Key);
        let campaign = LockRequest::new(self, what).wait(Wait::Forever);
        let election = Election { locks: self.clone(), name, backoff: None, campaign };
        match LeaseId::mint() {
            Ok(random) => election.candidate_name(random.to_string().as_str()),
            Err(error) => Election { name: Err(error), ..election },
        }
    }
}

impl Election {
    /// Sets the name of this candidate, for people: it is the [`GroupName`] of the lease while it leads. By default
    /// random. It is never an identity; two candidates of one name exclude each other like any others.
    pub fn candidate_name<N: TryInto<GroupName, Error: Into<Error>>>(self, name: N) -> Self {
        self.with(|campaign| campaign.group(name))
    }

    /// Sets the TTL, 30 s by default: for so long a leader that has died delays the next election. A live leader
    /// renews. [`Ttl::NEVER`] is refused: no candidate could be elected after a leader that died.
    pub fn ttl<D: TryInto<Ttl, Error: Into<Error>>>(self, ttl: D) -> Self {
        let finite = match ttl.try_into().map_err(Into::into) {
            Ok(ttl) if ttl.is_never() => Err(Error::invalid_input(
                "the TTL is never; give 10 ms to 10 years, so that another candidate can be elected after a leader \
                 that died",
            )),
            other => other,
        };
        self.with(|campaign| campaign.set(finite, |options, ttl| options.ttl = Some(ttl)))
    }

    /// Sets how long [`campaign`](Election::campaign) waits; by default, and always for a spawned candidate,
    /// for ever.
    pub fn wait(self, wait: impl Into<Wait>) -> Self {
        self.with(|campaign| campaign.wait(wait))
    }

    /// Sets the pauses between tries, and between the polls of an observer; used as given, in place of the slow poll
    /// beside the store's wake-ups. A candidate ends when its back-off does.
    pub fn backoff(mut self, backoff: impl Backoff) -> Self {
        let pauses = Pauses::new(backoff);
        self.backoff = Some(pauses.clone());
        self.with(|campaign| campaign.backoff(pauses))
    }

    /// Calls `call` after each try that did not elect this candidate, if its campaign continues; see
    /// [`LockRequest::on_blocked`].
    pub fn on_blocked(self, call: impl FnMut(&WaitReport) + Send + 'static) -> Self {
        self.with(|campaign| campaign.on_blocked(call))
    }

    /// Keeps the name taken in the store for this much longer after a loss, so that work that the leader began can end.
    /// A resignation is not delayed.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with(|campaign| campaign.lock_delay(delay))
    }

    /// Ends each leadership after this long, so that a leader that hangs is not renewed for ever. A spawned
    /// candidate then pauses as after a [resignation](Leadership::resign).
    pub fn max_hold(self, max: Duration) -> Self {
        self.with(|campaign| campaign.max_hold(max))
    }

    /// Sets the program that other clients see, in place of the one in the [`Locker`]'s note.
    pub fn program(self, program: &str) -> Self {
        self.with(|campaign| campaign.program(program))
    }

    /// Sets the comment that other clients see beside host, process id and program.
    pub fn comment(self, comment: &str) -> Self {
        self.with(|campaign| campaign.comment(comment))
    }

    /// Sets the `label` of this candidate's metrics; a few distinct ones, never a name.
    pub fn label(self, label: &str) -> Self {
        self.with(|campaign| campaign.label(label))
    }

    /// Requires that the store reaches `level`; see [`LockRequest::require`].
    pub fn require(self, level: Level) -> Self {
        self.with(|lock| lock.require(level))
    }

    /// Requires a token: `Unsupported` on a store that has none.
    pub fn fenced(self) -> Self {
        self.with(LockRequest::fenced)
    }

    /// Waits until this candidate is elected, once. It queues in its [`Locker`], and tries when the store reports that
    /// the name may be free, when the leader's term is over, or after the usual pauses ([F1](crate::contract)). The
    /// future does not borrow the election.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong argument, or if this `Locker` has a candidate of this name already; else as
    /// [`LockRequest`].
    ///
    /// # Cancel safety
    /// May be dropped: the campaign ends, and a leadership won after that is released in the background
    /// ([F6](crate::contract)).
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership>> + Send + use<> {
        let Self { locks, name, campaign, .. } = self.clone();
        async move {
            let registration = locks.0.registry.register(&locks.0.keeper, &name?)?;
            Ok(Leadership::registered(campaign.await?, registration))
        }
    }

    /// Campaigns in the background, again after each loss, until `shutdown` ends. The first try is made at once.
    ///
    /// When `shutdown` ends, the candidate resigns; [`Candidate::join`] ends when the store has answered, or after the
    /// limit of one operation. The handle may be dropped: the candidate continues.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong argument, or if this `Locker` has a candidate of this name already;
    /// `Unsupported` for what the store cannot do; `Unexpected` outside a tokio runtime with timers.
    pub fn spawn(&self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<Candidate> {
        let campaign = self.campaign.clone().wait(Wait::Forever);
        let spec = campaign.spec()?;
        let runtime = Handle::try_current().map_err(|e| {
            Error::unexpected("a candidate needs a tokio runtime; spawn it inside one")
                .with_source(e)
        })?;
        self.locks.0.keeper.check_timers()?;
        let registration = self.locks.0.registry.register(&self.locks.0.keeper, self.name()?)?;
        let state = Arc::new(CandidateState::new(self.locks.clone(), &spec)?);
        let ending = Ending::of(&state, registration);
        runtime.spawn(task::stand(ending, campaign, shutdown));
        Ok(Candidate::new(state))
    }

    /// Queries the store for the leader: the lease's id, the candidate's name as its group, the note for people, the
    /// time since its election and last renewal, and what remains. `None` if there is no leader, also if the last
    /// leader's term is over.
    ///
    /// # Errors
    /// As [`Locker::status`].
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn leader(&self) -> Result<Option<Record>> {
        leader_of(&self.locks, self.name()?).await
    }

    /// Watches the leader without being a candidate: first the present one, then each change.
    ///
    /// A store that can push is queried when it reports that the name may be free, when the leader's term is over, and
    /// otherwise every 10 s; another store after pauses that grow from 10 ms to 1 s. Leaders that come
    /// and go between two queries are not seen. While
    /// the store does not answer, the leader is [`Unknown`](LeadershipEvent::Unknown).
    ///
    /// # Errors
    /// `InvalidInput` for a wrong argument.
    pub fn observe(&self) -> Result<LeadershipEvents> {
        let name = self.name()?.clone();
        Ok(LeadershipEvents::observed(Observer::new(
            self.locks.clone(),
            name,
            self.backoff.clone(),
        )))
    }

    fn name(&self) -> Result<&Key> {
        self.name.as_ref().map_err(Clone::clone)
    }

    fn with(mut self, set: impl FnOnce(LockRequest<Guard>) -> LockRequest<Guard>) -> Self {
        self.campaign = set(self.campaign);
        self
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name).finish_non_exhaustive()
    }
}
