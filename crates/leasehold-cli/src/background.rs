//! The runtime.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// As long as the process.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Runs `job` in this thread and background work in another, so that neither delays the other.
///
/// # Errors
/// Fails if there are not enough threads or open files: a runtime with worker threads of its own would panic, or wait
/// for ever for one.
pub(crate) fn wait_for<T>(job: impl Future<Output = T>) -> io::Result<T> {
    let runtime = build()?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("leasehold".to_owned()).spawn(move || {
        // It is an error when the sender is dropped.
        let _ = runtime.block_on(ended);
        // A store that hangs must not keep the process from ending.
        runtime.shutdown_background();
    })?;
    // A blocking call, such as the look-up of a name, panics if there is no thread for it: so one is kept. That it can
    // be started is seen before.
    thread::Builder::new().spawn(|| {})?.join().expect("it does nothing");
    drop(handle.spawn_blocking(|| {}));
    let done = handle.block_on(job);
    drop(end);
    Ok(done)
}

fn build() -> io::Result<Runtime> {
    // It opens five files, and panics if it lacks those through which signals arrive.
    let room = [UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?];
    drop(room);
    Builder::new_current_thread().enable_all().thread_keep_alive(FOR_EVER).build()
}
