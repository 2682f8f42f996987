use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff as _, Error, ErrorKind, Exponential, Result};

use super::leadership::Leadership;
use super::state::CandidateState;
use crate::acquire::request::LockRequest;
use crate::guard::Guard;
use crate::lease::events::Event;
use crate::registry::Registration;
use crate::telemetry;

/// The longest pause in which a candidate that resigned, or led for as long as it may, lets others try: longer than the
/// longest pause of a candidate that the store does not wake.
const STAND_BACK: Duration = Duration::from_secs(3);

/// True for a failure of the store that a later campaign may not meet: a rotated password, or a panic.
fn may_pass(error: &Error) -> bool {
    error.is_retryable() || matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unexpected)
}

/// The pause after so many failed campaigns: growing to half a minute, with jitter.
fn failure_pause(failures: u32) -> Duration {
    let mut pauses = Exponential::new(Duration::from_secs(1), Duration::from_secs(30))
        .expect("the first pause is the shorter");
    pauses.next(failures).unwrap_or_default()
}

/// Campaigns until `shutdown` ends, or a failure that no further try can resolve.
pub(super) async fn stand(
    ending: Ending,
    campaign: LockRequest<Guard>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let state = Arc::clone(&ending.state);
    let campaign = campaign.observer(Arc::<CandidateState>::clone(&state));
    let outcome = state.stand(&campaign, pin!(shutdown)).await;
    ending.with(outcome);
}

/// Why a candidate stops campaigning.
#[derive(PartialEq, Eq)]
enum Stop {
    Shutdown,
    Pause,
}

impl CandidateState {
    async fn stand(
        &self,
        campaign: &LockRequest<Guard>,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<()> {
        let mut failures = 0;
        loop {
            match self.once(campaign, shutdown.as_mut(), &mut failures).await? {
                None => continue,
                Some(Stop::Shutdown) => return Ok(()),
                Some(Stop::Pause) => self.rests(true),
            }
            let stop = tokio::select! {
                biased;
                () = &mut shutdown => true,
                () = self.wished(false) => false,
            };
            self.rests(false);
            if stop {
                return Ok(());
            }
        }
    }

    /// Campaigns once and leads; `None` if it must campaign again. `failures` counts the campaigns in a row that
    /// failed.
    async fn once(
        &self,
        campaign: &LockRequest<Guard>,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
        failures: &mut u32,
    ) -> Result<Option<Stop>> {
        let guard = tokio::select! {
            biased;
            stop = self.stopped(shutdown.as_mut()) => {
                self.settled(self.limit()).await;
                return Ok(Some(stop));
            }
            guard = campaign.clone().into_future() => guard,
        };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) if may_pass(&error) => {
                self.campaign_failed(&error);
                let pause = failure_pause(*failures);
                *failures = failures.saturating_add(1);
                return Ok(self.rest(shutdown, pause).await);
            }
            Err(error) => return Err(error),
        };
        *failures = 0;
        let leadership = Arc::new(Leadership::spawned(guard));
        self.gained(&leadership);
        let stop = tokio::select! {
            biased;
            stop = self.stopped(shutdown.as_mut()) => Some(stop),
            () = self.lead(&leadership) => None,
        };
        if stop.is_some() {
            let limit = self.limit();
            if let Err(error) = leadership.resign().await {
                telemetry::resignation_continues(&error);
            }
            self.over(&leadership);
            self.settled(limit).await;
            return Ok(stop);
        }
        let yields = self.over(&leadership);
        let rest = self.ttl.duration().unwrap_or(STAND_BACK).min(STAND_BACK);
        Ok(self.rest(shutdown, if yields { rest } else { Duration::ZERO }).await)
    }

    /// Lets others try for this long; `None` if it must campaign again.
    async fn rest(
        &self,
        shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
        time: Duration,
    ) -> Option<Stop> {
        let until = self.now().saturating_add(time);
        tokio::select! {
            biased;
            stop = self.stopped(shutdown) => {
                self.settled(self.limit()).await;
                Some(stop)
            }
            () = self.locks.0.keeper.clock.sleep_until(until) => None,
        }
    }

    /// Ends when the leadership does; each renewal meanwhile is a round.
    async fn lead(&self, leadership: &Leadership) {
        let mut events = leadership.guard().events();
        let mut ended = pin!(leadership.guard().ended());
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                Some(event) = events.next() => match event {
                    Event::Renewed { .. } => self.round(Some(true)),
                    Event::Failed(_) => self.round(None),
                    Event::Lost(_) | Event::Stopped => {}
                },
            }
        }
    }

    /// Ends when it must stop campaigning.
    async fn stopped(&self, shutdown: Pin<&mut (impl Future<Output = ()> + Send)>) -> Stop {
        tokio::select! {
            biased;
            () = shutdown => Stop::Shutdown,
            () = self.wished(true) => Stop::Pause,
        }
    }

    async fn wished(&self, paused: bool) {
        self.until(|view| (view.paused == paused).then_some(())).await;
    }

    /// Ends when it holds nothing and has no open request, or at `limit`.
    async fn settled(&self, limit: Duration) {
        let keeper = &self.locks.0.keeper;
        keeper.attend();
        let taken = self.taken();
        tokio::select! {
            biased;
            () = keeper.ids.given_back(&taken) => {}
            () = keeper.clock.sleep_until(limit) => {
                telemetry::stood_down_early();
            }
        }
    }

    fn limit(&self) -> Duration {
        self.now().saturating_add(self.locks.0.keeper.limit)
    }
}

/// Reports the end of the candidate, also if its task was dropped, polled or not. The name is free for another
/// candidate before that.
pub(super) struct Ending {
    state: Arc<CandidateState>,
    registration: Option<Registration>,
}

impl Ending {
    pub(super) fn of(state: &Arc<CandidateState>, registration: Registration) -> Self {
        Self { state: Arc::clone(state), registration: Some(registration) }
    }

    fn with(mut self, outcome: Result<()>) {
        self.registration = None;
        self.state.end(outcome);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.registration = None;
        self.state.end(Err(Error::unexpected(
            "a candidate's task was dropped with its tokio runtime, or panicked",
        )));
    }
}
