//! The messages of the command: one line per event on stderr, for people or as JSON.

mod event;

use std::io::Write as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::inspect::Unreadable;

pub(crate) use self::event::Event;
use crate::failure::{Failure, kind_name, no_thread};

/// How much to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Nothing: the exit code states it.
    Silent,
    /// Losses, and failures other than a lock that is not free.
    Losses,
    /// Problems.
    Problems,
    /// Also each step.
    Steps,
    /// Also each renewal.
    Renewals,
}

/// Writes events to stderr from its own thread: a slow or stopped reader must delay neither a renewal nor a kill.
#[derive(Debug)]
pub(crate) struct Reporter {
    level: Level,
    json: bool,
    orders: mpsc::Sender<WriterCommand>,
}

enum WriterCommand {
    Write(String),
    /// Answered when everything before it is written.
    Answer(mpsc::Sender<()>),
}

impl Reporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if it cannot be started. This is written to stderr.
    pub(crate) fn start(level: Level, json: bool) -> Result<Self, Failure> {
        let (orders, received) = mpsc::channel();
        // It does not matter whether stderr can still be written, or whether anyone waits for an answer.
        let run = move || {
            for order in received {
                match order {
                    WriterCommand::Write(line) => {
                        let _ = std::io::stderr().write_all(line.as_bytes());
                    }
                    WriterCommand::Answer(asker) => {
                        let _ = asker.send(());
                    }
                }
            }
        };
        let started = thread::Builder::new().name("leasehold-report".to_owned()).spawn(run);
        started.map_err(no_thread).inspect_err(|failure| {
            if let Some(line) = line(level, json, &Event::Failed { failure }) {
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        })?;
        Ok(Self { level, json, orders })
    }

    /// Whether events of this level are reported.
    pub(crate) fn reports(&self, level: Level) -> bool {
        self.level >= level
    }

    /// Reports `event` if its level is on.
    pub(crate) fn report(&self, event: &Event<'_>) {
        if let Some(line) = line(self.level, self.json, event) {
            self.order(WriterCommand::Write(line));
        }
    }

    /// Waits, but no longer than `limit`, until everything is written.
    pub(crate) fn settle(&self, limit: Duration) {
        let (asker, answer) = mpsc::channel();
        self.order(WriterCommand::Answer(asker));
        // A slower reader reads the rest later, or never.
        let _ = answer.recv_timeout(limit);
    }

    /// Reports what could not be read, in one event for each kind of reason.
    pub(crate) fn report_unreadable(&self, mut unreadable: Vec<Unreadable>) {
        unreadable.sort_by_key(|one| kind_name(one.error.kind()));
        for unreadable in unreadable.chunk_by(|a, b| a.error.kind() == b.error.kind()) {
            self.report(&Event::Unreadable { unreadable });
        }
    }

    fn order(&self, order: WriterCommand) {
        self.orders.send(order).expect("the thread lives as long as this sender");
    }
}

/// The line for `event`; `None` if its level is off.
fn line(level: Level, json: bool, event: &Event<'_>) -> Option<String> {
    let text = || match json {
        true => serde_json::to_string(event).expect("an event is text and numbers") + "\n",
        false => format!("leasehold: {event}\n"),
    };
    (event.level(json) <= level).then(text)
}
