use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{BoxFuture, Clock};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use super::Keeper;

/// How late the task may be. Then its runtime counts as one that nobody drives.
const GRACE: Duration = Duration::from_millis(100);

/// The task of a Keeper, and its stand-ins: one on each other runtime that uses the `Locker` while the task has
/// work. If the task is late, the first stand-in that sees it takes over.
#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    /// The next wake-up may have changed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// The task and where it runs, unless it has ended. A task that is not this one has been replaced, and ends.
    task: Option<(Id, Arc<Task>)>,
    stand_ins: HashSet<Id>,
}

/// One task; each has its own, so that one that is not driven takes nothing from the one that replaced it.
#[derive(Default)]
pub(super) struct Task {
    wake: Notify,
    /// When the renewals in flight end.
    limits: Mutex<Vec<Duration>>,
}

impl Task {
    fn limits(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begins_renewal(&self, until: Duration) {
        self.limits().push(until);
    }

    pub(super) fn ends_renewal(&self, until: Duration) {
        let mut limits = self.limits();
        if let Some(at) = limits.iter().position(|limit| *limit == until) {
            limits.swap_remove(at);
        }
    }
}

impl Tasks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task and its stand-ins.
    pub(super) fn wake(&self) {
        if let Some((_, task)) = &self.state().task {
            task.wake.notify_one();
        }
        self.changed.notify_waiters();
    }
}

/// Reports the end of a task, however it ended.
struct Running {
    keeper: Arc<Keeper>,
    task: Arc<Task>,
}

impl Running {
    fn is_replaced(&self, state: &State) -> bool {
        !state.task.as_ref().is_some_and(|(_, task)| Arc::ptr_eq(task, &self.task))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.keeper.tasks.state();
        if !self.is_replaced(&state) {
            state.task = None;
            self.keeper.running_in.store(0, Ordering::Release);
        }
    }
}

/// Reports the end of a stand-in.
struct StandIn {
    keeper: Arc<Keeper>,
    runtime: Id,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.keeper.tasks.state().stand_ins.remove(&self.runtime);
    }
}

impl Keeper {
    /// Ensures that this runtime does the work, or stands in for the one that does; true if it does it. `Err` is for a
    /// runtime without timers, if the task does not run yet.
    pub(super) fn run_on(self: &Arc<Self>, runtime: &Handle) -> leasehold_core::Result<bool> {
        let mut state = self.tasks.state();
        if state.task.as_ref().is_some_and(|(at, _)| *at == runtime.id()) {
            return Ok(true);
        }
        let next = self.next_wake(&state);
        let is_late = next.is_some_and(|next| next.saturating_add(GRACE) <= self.clock.now());
        match &state.task {
            Some(_) if !is_late => {
                let is_wanted = next.is_some() && self.check_timers().is_ok();
                if is_wanted && state.stand_ins.insert(runtime.id()) {
                    drop(state);
                    let keeper = Arc::clone(self);
                    runtime.spawn(stand_in(StandIn { keeper, runtime: runtime.id() }));
                }
                Ok(false)
            }
            _ => {
                self.check_timers()?;
                let task = Arc::new(Task::default());
                let replaced = state.task.replace((runtime.id(), Arc::clone(&task)));
                self.running_in.store(std::process::id(), Ordering::Release);
                drop(state);
                if let Some((_, replaced)) = replaced {
                    replaced.wake.notify_one();
                    self.rearm_all();
                }
                runtime.spawn(work(Running { keeper: Arc::clone(self), task }));
                Ok(true)
            }
        }
    }

    /// Makes due again what the replaced task has in flight and nobody may ever poll.
    fn rearm_all(&self) {
        let now = self.clock.now();
        for held in self.schedule.all() {
            held.rearm(now);
            self.schedule.reschedule(&held);
        }
    }

    /// When the task wakes by itself at the latest, as far as is known.
    fn next_wake(&self, state: &State) -> Option<Duration> {
        let answered =
            state.task.as_ref().and_then(|(_, task)| task.limits().iter().min().copied());
        self.schedule.planned().into_iter().chain(self.mailbox.next_due()).chain(answered).min()
    }
}

async fn work(running: Running) {
    let keeper = &running.keeper;
    let mut flights = FuturesUnordered::<BoxFuture<'static, ()>>::new();
    while !running.is_replaced(&keeper.tasks.state()) {
        flights.extend(keeper.renewals(&running.task));
        flights.extend(keeper.take_work());
        let renewal = keeper.schedule.plan(keeper.clock.now());
        let next = renewal.into_iter().chain(keeper.mailbox.next_due()).min();
        // Without a guard there is no held lease. What the last guard left may have arrived just now.
        let orphaned = keeper.orphaned.load(Ordering::Acquire);
        if orphaned && flights.is_empty() && keeper.mailbox.is_empty() {
            return;
        }
        tokio::select! {
            () = running.task.wake.notified() => {}
            Some(()) = flights.next() => {}
            () = sleep_until(&*keeper.clock, next) => {}
        }
    }
}

/// Takes over when the task is late; ends when there is nothing to wait for.
async fn stand_in(place: StandIn) {
    let keeper = Arc::clone(&place.keeper);
    loop {
        let changed = keeper.tasks.changed.notified();
        if keeper.orphaned.load(Ordering::Acquire) && keeper.mailbox.is_empty() {
            return;
        }
        let Some(next) = keeper.next_wake(&keeper.tasks.state()) else { return };
        let late = next.saturating_add(GRACE);
        if late <= keeper.clock.now() {
            drop(place);
            return keeper.attend();
        }
        tokio::select! {
            () = changed => {}
            () = keeper.clock.sleep_until(late) => {}
        }
    }
}

async fn sleep_until(clock: &dyn Clock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
