use std::fmt;
use std::future::Future;
use std::sync::Arc;

use leasehold_core::{GroupName, Key, Record, Result, Ttl};

use super::events::LeadershipEvents;
use super::leader::leader_of;
use super::leadership::Leadership;
use super::state::{CandidateState, CandidateStatus};

/// A candidate that campaigns in the background, again after each loss; see [`Election::spawn`].
///
/// Clones are handles of the same candidate. Without a handle it continues until it is shut down.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
/// use tokio::sync::oneshot;
///
/// let (stop, stopped) = oneshot::channel::<()>();
/// let candidate = locks.election("scheduler").spawn(async { drop(stopped.await) })?;
///
/// let leadership = candidate.elected().await?;
/// assert!(candidate.status().leads);
/// leadership.run(async { /* work */ }).await?;
///
/// drop(stop);
/// candidate.join().await?; // it has resigned
/// # Ok(()) }
/// ```
///
/// [`Election::spawn`]: crate::Election::spawn
#[derive(Clone)]
pub struct Candidate(Arc<CandidateState>);

impl Candidate {
    pub(super) fn new(state: Arc<CandidateState>) -> Self {
        Self(state)
    }

    /// The name of the election.
    pub fn name(&self) -> &Key {
        self.0.name()
    }

    /// The candidate's own name.
    pub fn candidate_name(&self) -> &GroupName {
        &self.0.id
    }

    /// Its TTL: for this long a leader that has died delays the next election.
    pub fn ttl(&self) -> Ttl {
        self.0.ttl
    }

    /// The number of completed rounds: tries, answered or failed, and renewals while it leads.
    pub fn iterations(&self) -> u64 {
        self.0.iterations()
    }

    /// True while it leads, by this process's clock and without I/O ([F4, F5](crate::contract)).
    pub fn is_leader(&self) -> bool {
        self.0.view().leadership.as_ref().is_some_and(|leadership| leadership.is_leader())
    }

    /// Its leadership, while it leads.
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.0.view().leadership.clone().filter(|leadership| leadership.is_leader())
    }

    /// Whether it leads, its token, and the leader that it last saw, without I/O.
    pub fn status(&self) -> CandidateStatus {
        self.0.status()
    }

    /// Queries the store for the leader; see [`Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    /// `Closed` if it no longer runs; else as [`Locker::status`](crate::Locker::status).
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn leader(&self) -> Result<Option<Record>> {
        self.0.running()?;
        leader_of(&self.0.locks, self.0.name()).await
    }

    /// Waits until it leads, now or later.
    ///
    /// # Errors
    /// `Closed` if it no longer runs.
    ///
    /// # Cancel safety
    /// May be dropped; the candidate continues.
    pub async fn elected(&self) -> Result<Arc<Leadership>> {
        self.0
            .until(|view| match &view.leadership {
                Some(leadership) if leadership.is_leader() => Some(Ok(Arc::clone(leadership))),
                _ => self.0.running_in(view).err().map(Err),
            })
            .await
    }

    /// What changes from now on: gained, lost with the reason, another leader.
    pub fn observe(&self) -> LeadershipEvents {
        let (known, next) = self.0.transitions();
        LeadershipEvents::of_candidate(known, next)
    }

    /// Calls `each` after every round from now on, until the candidate has ended: with `true` while it leads,
    /// with `false` while another candidate does; not at all if the store failed.
    ///
    /// A reader that lags more than 64 rounds behind misses the oldest.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    #[doc(hidden)] // only for programs that move from spindle, whose callback it replaces
    pub fn for_each_round<F: FnMut(bool)>(&self, mut each: F) -> impl Future<Output = ()> + use<F> {
        let mut rounds = self.0.rounds();
        async move {
            while let Some(leads) = rounds.next().await {
                each(leads);
            }
        }
    }

    /// Pauses until [`resume`](Candidate::resume): resigns if it leads, and does not campaign. Ends when the store has
    /// answered, or after the limit of one operation; the release then continues in the background.
    ///
    /// # Errors
    /// `Closed` if it no longer runs.
    ///
    /// # Cancel safety
    /// May be dropped once it was polled; the candidate is paused all the same.
    pub async fn pause(&self) -> Result<()> {
        self.0.wish(true)?;
        self.0
            .until(|view| (view.rests || !view.paused || view.ended.is_some()).then_some(()))
            .await;
        Ok(())
    }

    /// Lets it campaign again, at once.
    ///
    /// # Errors
    /// `Closed` if it no longer runs.
    pub fn resume(&self) -> Result<()> {
        self.0.wish(false)
    }

    /// Ends when the candidate has: after its shutdown, when its last release was answered, or with what
    /// ended it before.
    ///
    /// # Errors
    /// What ended it: a store that cannot be used (`Incompatible`, `Corrupt`, `Unsupported`), `TimedOut` if its
    /// back-off stopped, `Closed` with its `Locker`, `Unexpected` if its runtime ended.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn join(&self) -> Result<()> {
        self.0.until(|view| view.ended.clone()).await
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("name", self.name())
            .field("id", self.candidate_name())
            .field("leads", &self.is_leader())
            .finish_non_exhaustive()
    }
}
