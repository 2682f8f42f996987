//! The connections of a command to its store.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::Locker;

use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::run::Signals;

/// How long the connections have to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// What `job` reports of the store that is opened for it, whose sessions are ended properly then: also if the job fails, or a
/// signal ends this process.
pub(super) async fn on<T>(
    opening: impl Future<Output = Result<Locker, Failure>>,
    job: impl AsyncFnOnce(&Locker) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let opened = Arc::<OnceLock<Locker>>::default();
    let mut signals = Signals::listen()
        .map_err(|error| Failure::unexpected(format!("signals cannot be received: {error}")))?;
    let known = Arc::clone(&opened);
    #[expect(
        clippy::disallowed_methods,
        reason = "a signal also ends a job that waits for its reader"
    )]
    let _until_the_end = tokio::spawn(async move {
        let signal = signals.next_ending().await;
        if let Some(locker) = known.get() {
            close(locker).await;
        }
        exit::die_of(signal);
        std::process::exit(Exit::of_signal(signal).code().into());
    });
    let locker = opening.await?;
    let locker = opened.get_or_init(|| locker);
    let done = job(locker).await;
    close(locker).await;
    done
}

async fn close(locker: &Locker) {
    // What is left ends with its term.
    drop(locker.close(CLOSE_LIMIT).await);
}
