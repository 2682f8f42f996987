use std::future::Future;
use std::time::Duration;

use leasehold_core::{FencingToken, LostReason, Result};
use tokio::task::JoinHandle;

use crate::guard::Guard;
use crate::lease::release_report::ReleaseReport;
use crate::registry::Registration;

/// The right to lead, until its own clock shows that the lease is over.
///
/// It is the [`Guard`] of the election's name, and can be lost at any time like any lease: work inside
/// [`run`](Leadership::run) or [`spawn`](Leadership::spawn), or watch [`lost`](Leadership::lost), and pass the
/// [`token`](Leadership::token) to whatever the leader changes.
///
/// Dropping it releases the lease in the background, best effort and **not immediately**. A spawned
/// [`Candidate`](crate::Candidate) holds its leadership too, so that dropping a handle to it changes nothing.
#[derive(Debug)]
#[must_use = "the leadership ends when it is dropped"]
pub struct Leadership {
    guard: Guard,
    #[expect(dead_code, reason = "held, not read")]
    registration: Option<Registration>,
}

impl Leadership {
    /// For a candidate that campaigns once and stays registered while it leads.
    pub(super) fn registered(guard: Guard, registration: Registration) -> Self {
        registration.is_elected(guard.held());
        Self { guard, registration: Some(registration) }
    }

    /// For a spawned candidate, which is registered itself.
    pub(super) fn spawned(guard: Guard) -> Self {
        Self { guard, registration: None }
    }

    /// The fencing token, where the store has them: larger than that of every earlier leader ([C7](crate::contract)).
    pub fn token(&self) -> Option<FencingToken> {
        self.guard.token()
    }

    /// The fencing token, for what must have one; see [`Guard::fencing_token`].
    ///
    /// # Errors
    /// `Unsupported` if the lease has none.
    pub fn fencing_token(&self) -> Result<FencingToken> {
        self.guard.fencing_token()
    }

    /// True until the leadership ends, by this process's clock and without I/O ([F4, F5](crate::contract)). Once false,
    /// for ever false.
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Ends, with the reason, as soon as the leadership is lost; see [`Guard::lost`]. Never ends if it is given up: by
    /// [`resign`](Leadership::resign), a pause or a shutdown. [`run`](Leadership::run) notices those too.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        self.guard.lost()
    }

    /// Runs `work` for as long as this leads; see [`Guard::run`]. It fails as `Closed` if the leadership was given up:
    /// by [`resign`](Leadership::resign), a pause or a shutdown.
    ///
    /// # Errors
    /// As [`Guard::run`].
    ///
    /// # Cancel safety
    /// As `work`; the leadership is untouched.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Runs `work` on a task of its own for as long as this leads; see [`Guard::spawn`]. A task that is spawned by
    /// other means continues after the leadership, also if `run` was given its handle.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<Result<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.guard.spawn(work)
    }

    /// Ends the leadership, so that another candidate can be elected at once, and returns the store's answer; see
    /// [`Guard::release`]. Stop the leader's work first.
    ///
    /// A spawned candidate then pauses (for the TTL, at most 3 s), so that others are elected if there are any, and
    /// campaigns again; [`Candidate::pause`](crate::Candidate::pause) prevents that.
    ///
    /// # Errors
    /// If the store did not answer. The release then continues in the background until it is answered or the term is
    /// over.
    ///
    /// # Cancel safety
    /// A release that was begun is completed in the background.
    pub async fn resign(&self) -> Result<ReleaseReport> {
        self.guard.end(Duration::ZERO).await
    }

    /// The guard of the election's lock: what remains, its events, a look-up in the store.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}
