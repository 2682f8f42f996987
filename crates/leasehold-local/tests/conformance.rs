//! The conformance suite on the local store, on a manual clock and on the machine's own.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{
    Backing, Forgets, Observation, Restarted, Result, Subject, Suite, Time,
};
use leasehold_core::{Clock, ManualClock, Now};
use leasehold_driver::SystemClock;
use leasehold_local::LocalStore;

/// Long compared with an operation, short compared with a test.
const TICK: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    Suite::new().on(Local).on_form(InRealTime).main()
}

/// The local store on a manual clock.
struct Local;

/// The local store on the machine's clocks.
struct InRealTime;

struct State {
    /// Replaced by a restart.
    store: Mutex<LocalStore>,
    time: Time,
}

impl State {
    fn new(time: Time) -> Self {
        Self { store: Mutex::new(LocalStore::with_clock(clock(&time))), time }
    }

    fn store(&self) -> LocalStore {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn clock(time: &Time) -> Arc<dyn Clock> {
    match time {
        Time::Manual(clock) => Arc::new(clock.clone()),
        _ => Arc::new(SystemClock::new()),
    }
}

impl Subject for Local {
    type Backing = State;

    fn name(&self) -> &'static str {
        "local"
    }

    async fn open(&self) -> Result<State> {
        Ok(State::new(Time::Manual(ManualClock::new())))
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }
}

impl Subject for InRealTime {
    type Backing = State;

    fn name(&self) -> &'static str {
        "local-in-real-time"
    }

    async fn open(&self) -> Result<State> {
        Ok(State::new(Time::Real { tick: TICK }))
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }
}

impl Backing for State {
    type Store = LocalStore;

    async fn client(&self) -> Result<LocalStore> {
        Ok(self.store())
    }

    async fn observe(&self) -> Result<Observation> {
        let now = Now::read(&*clock(&self.time));
        Ok(Observation::of_table(&self.store().snapshot(), now))
    }

    fn time(&self) -> Time {
        self.time.clone()
    }

    /// Its leases end with their process.
    async fn restart(&self) -> Result<Restarted> {
        let store = LocalStore::with_clock(clock(&self.time));
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = store;
        Ok(Restarted::Forgot)
    }
}
