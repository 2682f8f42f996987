use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use leasehold_core::{Claims, FencingToken, LeaseId};
use serde_json::{Value, json};

/// Everything that the clients of one state did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct History {
    /// Requests, in any order.
    pub calls: Vec<Call>,
    /// When a client held a lease by its own clock, in any order.
    pub beliefs: Vec<Belief>,
    /// Until its answer, an acquire that was refused, or met a busy key, may have held its keys.
    pub withdraws: bool,
    /// The most shared holders that the store grants one key; `None` is no limit.
    pub max_holders: Option<NonZeroU32>,
}

impl History {
    /// A history in which what is refused never held, of a store without a limit on shared holders.
    pub fn new(calls: Vec<Call>, beliefs: Vec<Belief>) -> Self {
        Self { calls, beliefs, withdraws: false, max_holders: None }
    }
}

/// One request about one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The lease.
    pub id: LeaseId,
    /// Its keys and their modes.
    pub claims: Claims,
    /// The instant before it was sent.
    pub invoked: u64,
    /// The instant after the answer.
    pub returned: u64,
    /// The request and its answer.
    pub answer: Answer,
}

impl Call {
    /// A request that was sent after `invoked` and answered, or given up, before `returned`.
    pub fn new(id: LeaseId, claims: Claims, invoked: u64, returned: u64, answer: Answer) -> Self {
        Self { id, claims, invoked, returned, answer }
    }
}

/// A request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// An acquire was granted.
    Granted {
        /// The token, where the store has them.
        token: Option<FencingToken>,
        /// The lease did not live before.
        fresh: bool,
    },
    /// An acquire was refused because of a holder.
    Refused,
    /// An acquire was refused because the key was busy, which shows nothing about holders.
    Busy,
    /// A renewal found the lease held.
    Held,
    /// A renewal found the lease lost.
    Lost,
    /// A release ended the lease.
    Released,
    /// A release found the lease expired or not held.
    Ended,
    /// An acquire has no answer.
    AcquireUnknown,
    /// A renewal or a release has no answer.
    Unknown,
}

/// A client held a lease by its own clock when it looked at it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Belief {
    /// The lease.
    pub id: LeaseId,
    /// Its keys and their modes.
    pub claims: Claims,
    /// An instant after the client knew of the grant.
    pub from: u64,
    /// The last instant before a look at the clock that found the lease valid.
    pub until: u64,
}

impl Belief {
    /// A belief that began no later than `from` and ended no earlier than `until`.
    pub fn new(id: LeaseId, claims: Claims, from: u64, until: u64) -> Self {
        Self { id, claims, from, until }
    }
}

/// What a recorded history contains; no number may be zero.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// How many clients there were.
    pub clients: usize,
    /// How many requests were sent.
    pub calls: usize,
    /// How often each answer occurred.
    pub answers: BTreeMap<&'static str, usize>,
    /// How many beliefs were compared.
    pub beliefs: usize,
}

impl Figures {
    pub(crate) fn of(history: &History, clients: usize) -> Self {
        let mut answers = BTreeMap::new();
        for call in &history.calls {
            *answers.entry(call.answer.name()).or_default() += 1;
        }
        Self { clients, calls: history.calls.len(), answers, beliefs: history.beliefs.len() }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "clients": self.clients,
            "calls": self.calls,
            "beliefs": self.beliefs,
            "answers": self.answers,
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} clients, {} calls, {} beliefs", self.clients, self.calls, self.beliefs)?;
        for (answer, count) in &self.answers {
            write!(f, ", {answer} {count}")?;
        }
        Ok(())
    }
}

impl Answer {
    fn name(self) -> &'static str {
        match self {
            Self::Granted { fresh: true, .. } => "granted",
            Self::Granted { fresh: false, .. } => "granted again",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::Lost => "lost",
            Self::Released => "released",
            Self::Ended => "expired or not held",
            Self::AcquireUnknown => "acquires without an answer",
            Self::Unknown => "others without an answer",
        }
    }
}
