mod report;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{InvalidValue, LostReason};

pub use report::{NodeOutcome, NodeReport, NodeReports, WaitCause, WaitReport};

/// `Result` with Leasehold's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, as one opaque type.
///
/// [`kind`](Error::kind) states what to do about it and [`effect`](Error::effect) whether the request may have
/// acted. A [`Store`](crate::Store) reports contention as a value; the front end turns it into `Held` or
/// `TimedOut`. A store failure is never reported as held, free or gone. No message contains a password.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    effect: Effect,
    message: Cow<'static, str>,
    store: Option<&'static str>,
    operation: Option<&'static str>,
    retry_after: Option<Duration>,
    lost: Option<LostReason>,
    wait: Option<WaitReport>,
    nodes: NodeReports,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another lease holds a key, and the caller did not want to wait.
    Held,
    /// The wait ended before the lock was free; [`Error::wait_report`] shows more.
    TimedOut,
    /// The lease was held and is lost; [`Error::lost_reason`] states why.
    Lost,
    /// The request can never succeed as it is.
    InvalidInput,
    /// The object has ended for good: a closed `Locker`, or a candidate that no longer runs.
    Closed,
    /// The store cannot do this; nothing was sent.
    Unsupported,
    /// The store could not be reached, did not answer in time, or cannot serve now.
    Unavailable,
    /// The store refused the credentials, or a privilege is missing.
    Denied,
    /// The store does not meet a requirement: version, settings, schema, file system.
    Incompatible,
    /// Leasehold cannot have written what is stored.
    Corrupt,
    /// Anything else.
    Unexpected,
}

/// Whether a failed request may have acted at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it surely did not act, or that is unknown")]
pub enum Effect {
    /// It did not act, or was rolled back; the id of an acquire that failed like this is never used again.
    NotApplied,
    /// It may have acted, or may still act; the same request may be sent again to learn the outcome.
    Unknown,
}

impl Error {
    fn new(kind: ErrorKind, effect: Effect, message: Cow<'static, str>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect,
            message,
            store: None,
            operation: None,
            retry_after: None,
            lost: None,
            wait: None,
            nodes: NodeReports::default(),
            source: None,
        }))
    }

    /// The request can never succeed as it is; `message` states what was given and what is allowed.
    pub fn invalid_input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidInput, Effect::NotApplied, message.into())
    }

    /// The object has ended for good; `message` states what to create instead.
    pub fn closed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Closed, Effect::NotApplied, message.into())
    }

    /// The store cannot do this.
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, Effect::NotApplied, message.into())
    }

    /// The store could not serve the request.
    pub fn unavailable(effect: Effect, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unavailable, effect, message.into())
    }

    /// The store refused the credentials, or a privilege is missing.
    pub fn denied(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Denied, Effect::NotApplied, message.into())
    }

    /// The store does not meet a requirement.
    pub fn incompatible(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Incompatible, Effect::NotApplied, message.into())
    }

    /// Leasehold cannot have written what is stored.
    pub fn corrupt(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, Effect::NotApplied, message.into())
    }

    /// Anything else; effect `NotApplied` unless [`with_effect`](Error::with_effect) states otherwise.
    pub fn unexpected(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unexpected, Effect::NotApplied, message.into())
    }

    /// Another lease holds a key.
    pub fn held(report: WaitReport) -> Self {
        let mut error =
            Self::new(ErrorKind::Held, Effect::NotApplied, Cow::Owned(report.to_string()));
        error.0.wait = Some(report);
        error
    }

    /// The wait ended before the lock was free; the effect is that of the last try.
    pub fn timed_out(report: WaitReport) -> Self {
        let effect = match &report.cause {
            WaitCause::Store(error) => error.effect(),
            WaitCause::Held | WaitCause::GrantedTooLate | WaitCause::Exhausted => {
                Effect::NotApplied
            }
        };
        let mut error = Self::new(ErrorKind::TimedOut, effect, Cow::Owned(report.to_string()));
        error.0.wait = Some(report);
        error
    }

    /// The lease is no longer held. `renewal` is how its last renewal failed, if that is why.
    pub fn lease_lost(reason: LostReason, renewal: Option<Self>) -> Self {
        let mut message = format!("the lease is lost: {reason}");
        if let Some(renewal) = &renewal {
            message += &format!("; the last: {renewal}");
        }
        let mut error = Self::new(ErrorKind::Lost, Effect::NotApplied, Cow::Owned(message));
        error.0.lost = Some(reason);
        error.0.source = renewal.map(|renewal| Arc::new(renewal) as _);
        error
    }

    /// Marks the leases of the store as lost with it: the store was replaced while it was open.
    #[must_use]
    pub fn with_lost_reason(mut self, reason: LostReason) -> Self {
        self.0.lost = Some(reason);
        self
    }

    /// Sets whether the request may have acted.
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Names the store and the operation that failed.
    #[must_use]
    pub fn with_context(mut self, store: &'static str, operation: &'static str) -> Self {
        self.0.store.get_or_insert(store);
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Sets after what time the request could succeed.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds what each node of a quorum reported.
    #[must_use]
    pub fn with_nodes(mut self, nodes: NodeReports) -> Self {
        self.0.nodes = nodes;
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request may have acted.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// True if the store failed in a way that may pass by itself. Contention (`Held`, `TimedOut`) is not a store
    /// failure.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// True for kind `Held`: another lease holds a key, and the caller did not want to wait.
    pub fn is_held(&self) -> bool {
        self.0.kind == ErrorKind::Held
    }

    /// True for kind `TimedOut`: the wait ended before the lock was free.
    pub fn is_timed_out(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// True for kind `Lost`: the lease was held and is lost.
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }

    /// The store that failed.
    pub fn store(&self) -> Option<&'static str> {
        self.0.store
    }

    /// The operation that failed.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// What caused the error, to downcast it to the error of a driver or of the system.
    pub fn cause(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }

    /// After what time the request could succeed, if the store knows.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Why the lease was lost, for kind `Lost`; for other kinds, why the leases of the store are.
    pub fn lost_reason(&self) -> Option<&LostReason> {
        self.0.lost.as_ref()
    }

    /// How long the caller waited and who held the key, for kinds `Held` and `TimedOut`.
    pub fn wait_report(&self) -> Option<&WaitReport> {
        self.0.wait.as_ref()
    }

    /// What each node reported; empty except from a quorum.
    pub fn nodes(&self) -> &NodeReports {
        &self.0.nodes
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.store, self.0.operation) {
            (Some(store), Some(operation)) => write!(f, "{store} {operation}: ")?,
            (Some(one), None) | (None, Some(one)) => write!(f, "{one}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (effect {:?}): {self}", self.0.kind, self.0.effect)?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    /// The first cause that says more than this error's own text, so that a report of the whole chain repeats nothing.
    /// [`cause`](Error::cause) has every cause.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let causes: Vec<_> = std::iter::successors(self.cause(), |&cause| cause.source()).collect();
        let told = causes.iter().rposition(|cause| says(&self.0.message, &cause.to_string()));
        causes.get(told.map_or(0, |last| last + 1)).copied()
    }
}

/// A part of a cause that is shorter may be in a text by chance.
const TELLING: usize = 16;

/// A text may quote less of a long reply, but not less than this.
const QUOTED: usize = 80;

/// Whether `text` says what `cause` does. A text that quotes a server's reply has it without the words that drivers put in front.
fn says(text: &str, cause: &str) -> bool {
    let parts = cause.match_indices(": ").map(|(at, colon)| &cause[at + colon.len()..]);
    let mut parts = parts.map(|part| part.trim_matches(['`', '\'']));
    let has = |part: &str| text.contains(&part.chars().take(QUOTED).collect::<String>());
    text.contains(cause) || parts.any(|part| part.len() >= TELLING && has(part))
}

impl From<InvalidValue> for Error {
    fn from(invalid: InvalidValue) -> Self {
        Self::invalid_input(invalid.into_message())
    }
}

/// Lets a checked value be passed where an unchecked one is accepted.
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
