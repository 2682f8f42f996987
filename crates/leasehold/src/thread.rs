use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;

use crate::telemetry;
use futures_util::FutureExt;
use leasehold_core::{Effect, Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread that runs the calls of a `Locker`'s blocking callers, together with its Keeper.
///
/// A caller polls nothing itself: on a worker of an async runtime, what it polled could wait for that worker.
pub(crate) struct Thread {
    runtime: Handle,
    process: u32,
    end: oneshot::Sender<Remainder>,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("process", &self.process).finish_non_exhaustive()
    }
}

/// The work that is left when the last handle is gone.
pub(crate) type Remainder = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// This thread serves blocking callers.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

impl Thread {
    pub(crate) fn start() -> Result<Self> {
        let (started, starting) = mpsc::sync_channel(1);
        let (end, ended) = oneshot::channel();
        thread::Builder::new()
            .name("leasehold".to_owned())
            .spawn(move || serve(&started, ended))
            .map_err(no_thread)?;
        let ended_at_once = |_| no_thread(io::Error::other("it ended at once"));
        let runtime = starting.recv().map_err(ended_at_once)?.map_err(no_thread)?;
        Ok(Self { runtime, process: std::process::id(), end })
    }

    /// Runs `call` on this thread and waits for its result. Everything that `call` owns is dropped by then.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if SERVES.get() {
            return Err(Error::unexpected(
                "a back-off, clock or store made a blocking call on the thread that runs it, which would wait for \
                 itself",
            ));
        }
        if self.process != std::process::id() {
            return Err(Error::unexpected(
                "this process was forked after its blocking Locker had started, and does not have its thread; create \
                 the Locker after the fork",
            ));
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let call = AssertUnwindSafe(telemetry::in_current_span(call)).catch_unwind();
        // The caller waits, so someone always receives it.
        self.runtime.spawn(async move { reply.send(call.await).unwrap_or_default() });
        let failed = |message| Err(Error::unexpected(message).with_effect(Effect::Unknown));
        match answer.recv() {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => failed("the call panicked on the Locker's thread"),
            Err(mpsc::RecvError) => failed("the Locker's thread has ended"),
        }
    }

    /// Lets the thread end when `left` is done.
    pub(crate) fn end(self, left: Remainder) {
        // A thread that has already ended has nothing to do.
        drop(self.end.send(left));
    }
}

/// The body of the thread.
fn serve(started: &mpsc::SyncSender<io::Result<Handle>>, ended: oneshot::Receiver<Remainder>) {
    SERVES.set(true);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return started.send(Err(error)).unwrap_or_default(),
    };
    started.send(Ok(runtime.handle().clone())).unwrap_or_default();
    runtime.block_on(async {
        if let Ok(left) = ended.await {
            left.await;
        }
    });
}

fn no_thread(error: io::Error) -> Error {
    Error::unexpected("the Locker's thread could not be started").with_source(error)
}
