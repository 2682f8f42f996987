//! The one background task of a `Locker`: renews leases, finishes abandoned requests, releases dropped guards.

mod book;
mod inbox;
mod releasing;
mod renewing;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::term::Drift;
use leasehold_core::{AnyStore, BoxFuture, Capabilities, Clock, Effect, Error, Result, Store};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::book::Book;
use self::inbox::Inbox;
pub(crate) use self::releasing::Releasing;
use crate::call::Orphaned;
use crate::held::{Held, Verdict};
use crate::ids::Ids;
use crate::line::Lines;
use crate::telemetry;

/// What a `Locker`, its guards and the background task share.
pub(crate) struct Keeper {
    pub(crate) store: AnyStore,
    pub(crate) can: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    /// How long one operation is waited for.
    pub(crate) limit: Duration,
    pub(crate) lines: Arc<Lines>,
    pub(crate) ids: Arc<Ids>,
    book: Book,
    inbox: Inbox,
    wake: Notify,
    /// The id of the process in which the task runs, 0 if it does not.
    running_in: AtomicU32,
    /// The `Locker` and its guards are gone: the task ends when its work is done.
    orphaned: AtomicBool,
}

impl Keeper {
    pub(crate) fn new(
        store: AnyStore,
        clock: Arc<dyn Clock>,
        drift: Drift,
        limit: Duration,
    ) -> Self {
        Self {
            can: store.capabilities(),
            store,
            clock,
            drift,
            limit,
            lines: Arc::default(),
            ids: Arc::default(),
            book: Book::default(),
            inbox: Inbox::default(),
            wake: Notify::new(),
            running_in: AtomicU32::new(0),
            orphaned: AtomicBool::new(false),
        }
    }

    /// Starts the task on the caller's runtime, unless it runs; a runtime that has ended takes its task with
    /// it, and the next acquire starts another (F3).
    pub(crate) fn ensure_running(self: &Arc<Self>) -> Result<()> {
        if self.runs_in_another_process() {
            return Err(Error::unexpected(
                "this process was forked off after its Locker had begun, and what renews its leases runs \
                 in the other; make the Locker after the fork",
            ));
        }
        if self.running_in.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let runtime = Handle::try_current().map_err(|e| {
            Error::unexpected("a lock needs a tokio runtime to renew it; call this inside one")
                .with_source(e)
        })?;
        self.check_timers()?;
        let begins = self.running_in.compare_exchange(
            0,
            std::process::id(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if begins.is_ok() {
            runtime.spawn(run(Running(Arc::clone(self))));
        }
        Ok(())
    }

    /// True in a process that was forked off after the task had begun. Of what the task's threads had locked at the
    /// fork, nothing is unlocked here, ever.
    pub(crate) fn runs_in_another_process(&self) -> bool {
        let running = self.running_in.load(Ordering::Acquire);
        running != 0 && running != std::process::id()
    }

    /// A runtime without timers says so in a panic only.
    pub(crate) fn check_timers(&self) -> Result<()> {
        let later = self.clock.now().saturating_add(Duration::from_secs(1));
        let ask = || {
            let mut timer = self.clock.sleep_until(later);
            timer.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        catch_unwind(AssertUnwindSafe(ask)).map(|_| ()).map_err(|_| {
            Error::unexpected("this tokio runtime has no timers; build it with enable_time()")
        })
    }

    /// Takes a lease into care.
    pub(crate) fn keep(self: &Arc<Self>, held: &Arc<Held>) {
        let sooner = self.book.insert(held);
        if sooner || self.running_in.load(Ordering::Acquire) == 0 {
            self.attend();
        }
    }

    /// The leases in care, oldest first.
    pub(crate) fn leases(&self) -> Vec<Arc<Held>> {
        self.book.all()
    }

    /// Asks the clock whether the lease is still held; whoever finds it lost releases it in the background.
    pub(crate) fn verdict(self: &Arc<Self>, held: &Arc<Held>) -> Verdict {
        let verdict = held.verdict(self.clock.now());
        self.settle(held, &verdict);
        verdict
    }

    /// Ends a hold at its holder's wish and forgets it.
    pub(crate) fn finish(self: &Arc<Self>, held: &Arc<Held>) -> Verdict {
        let now = self.clock.now();
        let verdict = held.finish(now);
        match &verdict {
            Verdict::Held(_) => {
                self.book.remove(held);
                telemetry::hold_ended(self.can.name, held, now);
            }
            other => self.settle(held, other),
        }
        verdict
    }

    /// Acts once on a loss: forgets the lease and releases it in the background (F5), for the store may hold
    /// it, or some of its keys, longer than we believe.
    fn settle(self: &Arc<Self>, held: &Arc<Held>, verdict: &Verdict) {
        if let Verdict::Lost { reason, news: true } = verdict {
            self.book.remove(held);
            telemetry::lost(self.can.name, held, reason, self.clock.now());
            self.release(vec![Releasing::of_lost(held)]);
            // Whoever waits in this process may try.
            self.lines.released(held.lease.claims.keys());
        }
    }

    /// Notes that a lease's next wake may have changed.
    fn reschedule(&self, held: &Arc<Held>) {
        if self.book.reschedule(held) {
            self.wake.notify_one();
        }
    }

    /// Releases in the background.
    pub(crate) fn release(self: &Arc<Self>, releases: Vec<Releasing>) {
        for releasing in releases {
            self.inbox.push_release(releasing);
        }
        self.attend();
    }

    /// Finishes a request whose caller went away.
    pub(crate) fn finish_call(self: &Arc<Self>, call: Orphaned) {
        self.inbox.push_call(call);
        self.attend();
    }

    /// Wakes the task, and starts it if there is a runtime to start it on.
    pub(crate) fn attend(self: &Arc<Self>) {
        if let Err(error) = self.ensure_running() {
            // The term is the backstop; the next acquire's Keeper takes the work up.
            tracing::debug!(%error, "background work waits for a runtime");
        }
        self.wake.notify_one();
    }

    /// Lets the task end when its work is done.
    pub(crate) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Ends when nothing is left to be released or finished, true, or at `until`, false.
    pub(crate) async fn drained(self: &Arc<Self>, until: Duration) -> bool {
        self.attend();
        tokio::select! {
            biased;
            () = self.inbox.drained() => true,
            () = self.clock.sleep_until(until) => false,
        }
    }

    /// What is said of a request that was not answered in time.
    pub(crate) fn unanswered(&self, operation: &'static str, limit: Duration) -> Error {
        let message = format!("the store did not answer within {limit:?}");
        Error::unavailable(Effect::Unknown, message).with_context(self.can.name, operation)
    }

    /// Waits for an operation no longer than the limit.
    pub(crate) async fn limited<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let until = self.clock.now().saturating_add(self.limit);
        tokio::select! {
            biased;
            reply = caught(request) => reply.and_then(|reply| reply),
            () = self.clock.sleep_until(until) => Err(self.unanswered(operation, self.limit)),
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Turns a panic of a store into an error, so that it ends one request and not the Keeper.
pub(crate) async fn caught<T>(request: impl Future<Output = T>) -> Result<T> {
    AssertUnwindSafe(request)
        .catch_unwind()
        .await
        .map_err(|_| Error::unexpected("the store panicked").with_effect(Effect::Unknown))
}

/// Says that the task has ended, however it ended.
struct Running(Arc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running_in.store(0, Ordering::Release);
    }
}

/// The task.
async fn run(running: Running) {
    let keeper = &running.0;
    let mut flights = FuturesUnordered::<BoxFuture<'static, ()>>::new();
    loop {
        for batch in keeper.due() {
            flights.push(Box::pin(Arc::clone(keeper).renew(batch)));
        }
        for work in keeper.take_work() {
            flights.push(work);
        }
        let next = keeper.book.plan(keeper.clock.now());
        // Without a guard there is no lease in care. What the last of them left may have come just now.
        let orphaned = keeper.orphaned.load(Ordering::Acquire);
        if orphaned && flights.is_empty() && keeper.inbox.is_empty() {
            return;
        }
        tokio::select! {
            () = keeper.wake.notified() => {}
            Some(()) = flights.next() => {}
            () = sleep_until(&*keeper.clock, next) => {}
        }
    }
}

async fn sleep_until(clock: &dyn Clock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
