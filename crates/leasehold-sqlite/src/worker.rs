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

/// What is done with the database, or if it could not be opened again.
type Act = Box<dyn FnOnce(Result<&mut Database>) + Send>;

enum Job {
    /// With a limit for opening the database again.
    Alone(Limit, Act),
    /// With others, if they wait too.
    Write(Box<dyn Member>),
    /// Closes the database, which the next job opens again, and then drops this.
    Close(oneshot::Sender<()>),
}

/// The handle to the thread. When it is dropped, the thread finishes what was sent, closes the database and ends.
pub(crate) struct Worker {
    jobs: Sender<Job>,
    closed: oneshot::Receiver<()>,
    clock: Arc<dyn Clock>,
    name: String,
}

impl Worker {
    /// Starts the thread, which opens the database first, and again when it was closed. `name` is for messages.
    pub(crate) async fn start(
        name: String,
        clock: Arc<dyn Clock>,
        limit: Limit,
        open: impl Fn(Limit) -> Result<Database> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (closing, closed) = oneshot::channel();
        let (reply, opened) = oneshot::channel();
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || serve(open, limit, reply, queue, closing))
            .map_err(|e| {
                Error::unavailable(
                    Effect::NotApplied,
                    format!(
                        "no thread could be started for {name}; the user may have too many processes (ulimit -u), or this \
                         one too little memory (ulimit -v)"
                    ),
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
            move |database: Result<&mut Database>| {
                let done = database.and_then(|database| {
                    // Before the job's transaction looks at the limit: a caller who sees after the limit that the job
                    // has not begun knows that it never acts.
                    begun.store(true, Ordering::SeqCst);
                    job(database)
                });
                // The caller may have gone.
                drop(reply.send(done));
            }
        });
        self.send(Job::Alone(limit, job))?;
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

    /// Waits, but not past `limit`, until what was sent is done and the database is closed. The next job opens it again.
    pub(crate) async fn disconnect(&self, limit: Limit) {
        let (closing, closed) = oneshot::channel();
        if self.send(Job::Close(closing)).is_ok() {
            // The thread drops its end.
            drop(select(closed, self.clock.sleep_until(limit.end())).await);
        }
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
    open: impl Fn(Limit) -> Result<Database>,
    limit: Limit,
    opened: oneshot::Sender<Result<()>>,
    queue: Receiver<Job>,
    closing: oneshot::Sender<()>,
) {
    match open(limit) {
        Ok(database) => {
            drop(opened.send(Ok(())));
            let mut thread = Thread { database: Some(database), open, queue };
            let mut next = None;
            while let Some(job) = next.take().or_else(|| thread.queue.recv().ok()) {
                next = thread.carry_out(job);
            }
        }
        Err(e) => drop(opened.send(Err(e))),
    }
    drop(closing);
}

/// What the thread has.
struct Thread<O> {
    /// `None` while it is closed.
    database: Option<Database>,
    open: O,
    queue: Receiver<Job>,
}

impl<O: Fn(Limit) -> Result<Database>> Thread<O> {
    /// Carries out a job, and if it writes, the writes that wait behind it. Returns a job that it has taken from the queue
    /// for that, and that is next.
    fn carry_out(&mut self, job: Job) -> Option<Job> {
        let first = match job {
            Job::Alone(limit, job) => {
                job(self.database(limit));
                return None;
            }
            Job::Close(closed) => {
                self.database = None;
                drop(closed);
                return None;
            }
            Job::Write(first) => first,
        };
        let limit = first.limit();
        let mut members = vec![first];
        let mut next = None;
        while next.is_none() && members.len() < MOST {
            match self.queue.try_recv() {
                Ok(Job::Write(member)) => members.push(member),
                Ok(other) => next = Some(other),
                // Empty, or closed: the caller finds out.
                Err(_) => break,
            }
        }
        match self.database(limit) {
            Ok(database) => group::commit(database, members),
            Err(error) => members.into_iter().for_each(|member| member.end(Err(error.clone()))),
        }
        next
    }

    /// The database, which is opened if it is closed.
    fn database(&mut self, limit: Limit) -> Result<&mut Database> {
        match &mut self.database {
            Some(database) => Ok(database),
            closed => Ok(closed.insert((self.open)(limit)?)),
        }
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
