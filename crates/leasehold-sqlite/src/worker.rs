//! The thread that owns the connection: SQLite blocks, and only one thread at a time may use a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold_core::{Clock, Effect, Error, Result};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::error;
use crate::group::{self, Member};
use crate::limit::Limit;
use crate::rows::Rows;

/// How long after its limit an operation that has begun is awaited: a commit that waits for the disk usually still
/// succeeds, and then its outcome is known.
const GRACE: Duration = Duration::from_millis(500);

/// The most writes of one commit, which limits how long it holds the write lock.
const MOST: usize = 256;

enum Job {
    Alone(Box<dyn FnOnce(&mut Database) + Send>),
    /// With others, if they wait too.
    Write(Box<dyn Member>),
}

/// The handle to the thread. When it is dropped, the thread finishes what was sent, closes the database and ends.
pub(crate) struct Worker {
    jobs: Sender<Job>,
    closed: oneshot::Receiver<()>,
    clock: Arc<dyn Clock>,
    name: String,
}

impl Worker {
    /// Starts the thread, which opens the database first. `name` is for messages.
    pub(crate) async fn start(
        name: String,
        clock: Arc<dyn Clock>,
        limit: Limit,
        open: impl FnOnce() -> Result<Database> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (closing, closed) = oneshot::channel();
        let (reply, opened) = oneshot::channel();
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || serve(open, reply, queue, closing))
            .map_err(|e| {
                Error::unavailable(
                    Effect::NotApplied,
                    format!("no thread could be started for {name}"),
                )
                .with_source(e)
            })?;
        let worker = Self { jobs, closed, clock, name };
        worker.answer(limit, &AtomicBool::new(true), opened).await?;
        Ok(worker)
    }

    /// Runs `job`, which must not act after `limit`, on the thread: to its end, even if this future is dropped
    /// (C15).
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        limit: Limit,
        job: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let job = Box::new({
            let begun = Arc::clone(&begun);
            move |database: &mut Database| {
                // Before the job's transaction looks at the limit: a caller who sees after the limit that the job
                // has not begun knows that it never acts.
                begun.store(true, Ordering::SeqCst);
                // The caller may have gone.
                drop(reply.send(job(database)));
            }
        });
        self.send(Job::Alone(job))?;
        self.answer(limit, &begun, answer).await
    }

    /// As [`run`](Self::run), for a job that writes inside a transaction which it may share with others; if that is
    /// rolled back, it runs again.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        limit: Limit,
        job: impl FnMut(&Rows<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let (clock, name) = (Arc::clone(&self.clock), self.name.clone());
        let write = Write { limit, clock, name, job, done: None, begun: Arc::clone(&begun), reply };
        self.send(Job::Write(Box::new(write)))?;
        self.answer(limit, &begun, answer).await
    }

    fn send(&self, job: Job) -> Result<()> {
        self.jobs.send(job).map_err(|_| error::gone(&self.name))
    }

    /// Drops the handle to the thread and waits until the database is closed.
    pub(crate) async fn close(self) {
        drop(self.jobs);
        // An error means that the thread has ended too, by a panic.
        drop(self.closed.await);
    }

    async fn answer<T>(
        &self,
        limit: Limit,
        begun: &AtomicBool,
        answer: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        let patience = self.clock.sleep_until(limit.end().saturating_add(GRACE));
        match select(answer, patience).await {
            Either::Left((Ok(result), _)) => result,
            Either::Left((Err(_), _)) => Err(error::gone(&self.name)),
            Either::Right(_) if begun.load(Ordering::SeqCst) => {
                Err(error::unanswered(&self.name, limit.total()))
            }
            Either::Right(_) => Err(error::late(&self.name, limit.total())),
        }
    }
}

fn serve(
    open: impl FnOnce() -> Result<Database>,
    opened: oneshot::Sender<Result<()>>,
    queue: Receiver<Job>,
    closing: oneshot::Sender<()>,
) {
    match open() {
        Ok(mut database) => {
            drop(opened.send(Ok(())));
            while let Ok(job) = queue.recv() {
                carry_out(&mut database, job, &queue);
            }
        }
        Err(e) => drop(opened.send(Err(e))),
    }
    drop(closing);
}

/// Carries out a job, and if it writes, the writes that wait behind it.
fn carry_out(database: &mut Database, job: Job, queue: &Receiver<Job>) {
    let first = match job {
        Job::Alone(job) => return job(database),
        Job::Write(first) => first,
    };
    let mut members = vec![first];
    let mut next = None;
    while members.len() < MOST {
        match queue.try_recv() {
            Ok(Job::Write(member)) => members.push(member),
            Ok(Job::Alone(job)) => {
                next = Some(job);
                break;
            }
            // Empty, or closed: the caller finds out.
            Err(_) => break,
        }
    }
    group::commit(database, members);
    if let Some(job) = next {
        job(database);
    }
}

/// A job that writes, and its caller.
struct Write<T, F> {
    limit: Limit,
    clock: Arc<dyn Clock>,
    name: String,
    job: F,
    done: Option<T>,
    begun: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&Rows<'_>) -> Result<T> + Send> Member for Write<T, F> {
    fn limit(&self) -> Limit {
        self.limit
    }

    fn act(&mut self, rows: &Rows<'_>) -> Result<()> {
        // Before the look at the limit, as in `run`.
        self.begun.store(true, Ordering::SeqCst);
        if self.limit.left(&*self.clock).is_none() {
            return Err(error::late(&self.name, self.limit.total()));
        }
        self.done = Some((self.job)(rows)?);
        Ok(())
    }

    fn end(self: Box<Self>, outcome: Result<()>) {
        let Self { done, reply, .. } = *self;
        let outcome = outcome.map(|()| done.expect("what was committed has acted"));
        // The caller may have gone.
        drop(reply.send(outcome));
    }
}
