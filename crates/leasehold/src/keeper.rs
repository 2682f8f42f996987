//! The one background task of a `Locker`: renews leases, finishes abandoned requests, releases dropped guards.

mod book;
mod inbox;
mod releasing;
mod renewing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::term::Drift;
use leasehold_core::{AnyStore, BoxFuture, Clock, Error, LostReason, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::book::Book;
use self::inbox::Inbox;
pub(crate) use self::releasing::Releasing;
use crate::held::{Held, Verdict};
use crate::line::Lines;
use crate::own_ids::OwnIds;
use crate::telemetry;

/// What a `Locker`, its guards and the background task share.
pub(crate) struct Keeper {
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    /// How long one operation may take.
    pub(crate) limit: Duration,
    pub(crate) lines: Arc<Lines>,
    pub(crate) own_ids: Arc<OwnIds>,
    /// The store's name, for metrics.
    pub(crate) name: &'static str,
    book: Book,
    inbox: Inbox,
    wake: Notify,
    running: AtomicBool,
    /// The `Locker` and its guards are gone: the task ends when its work is done.
    orphaned: AtomicBool,
}

impl Keeper {
    pub(crate) fn new(
        store: AnyStore,
        name: &'static str,
        clock: Arc<dyn Clock>,
        drift: Drift,
        limit: Duration,
    ) -> Self {
        Self {
            store,
            clock,
            drift,
            limit,
            lines: Arc::default(),
            own_ids: Arc::default(),
            name,
            book: Book::default(),
            inbox: Inbox::default(),
            wake: Notify::new(),
            running: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
        }
    }

    /// Starts the task on the caller's runtime, unless it runs; a runtime that has ended takes its task with
    /// it, and the next acquire starts another (F3).
    pub(crate) fn ensure_running(self: &Arc<Self>) -> Result<()> {
        if self.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let running = Running(Arc::clone(self));
        let runtime = Handle::try_current().map_err(|e| {
            Error::unexpected("a lock needs a tokio runtime with its timers enabled to renew it")
                .with_source(e)
        })?;
        runtime.spawn(run(running));
        Ok(())
    }

    /// Takes a lease into care.
    pub(crate) fn keep(&self, held: &Arc<Held>) {
        if self.book.insert(held) {
            self.wake.notify_one();
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
                telemetry::hold_ended(self.name, held, now);
            }
            other => self.settle(held, other),
        }
        verdict
    }

    /// Acts once on what a verdict says.
    fn settle(self: &Arc<Self>, held: &Arc<Held>, verdict: &Verdict) {
        match verdict {
            Verdict::Held(_) | Verdict::Released | Verdict::Lost { news: false, .. } => {}
            Verdict::Lost { reason, news: true } => {
                self.book.remove(held);
                telemetry::lost(self.name, held, reason, self.clock.now());
                match reason {
                    // The store has dropped it; whoever waits in this process may try.
                    LostReason::Gone | LostReason::Evicted(_) => {
                        self.lines.released(held.lease.claims.keys());
                    }
                    // F5: released in the background, for the store may hold it longer than we believe.
                    LostReason::Expired | LostReason::StoreUnreachable | LostReason::MaxHold => {
                        self.release(Releasing::of(held, self.clock.now()));
                    }
                }
            }
        }
    }

    /// Releases in the background.
    pub(crate) fn release(self: &Arc<Self>, releasing: Releasing) {
        self.inbox.push_release(releasing);
        self.attend();
    }

    /// Finishes a request whose caller went away.
    pub(crate) fn finish_call(self: &Arc<Self>, call: BoxFuture<'static, Option<Releasing>>) {
        self.inbox.push_call(call);
        self.attend();
    }

    fn attend(self: &Arc<Self>) {
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
    pub(crate) async fn drained(&self, until: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.inbox.drained() => true,
            () = self.clock.sleep_until(until) => false,
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Says that the task has ended, however it ended.
struct Running(Arc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
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
        let next = keeper.book.plan();
        let idle = flights.is_empty() && next.is_none();
        if idle && keeper.orphaned.load(Ordering::Acquire) && keeper.inbox.is_empty() {
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
