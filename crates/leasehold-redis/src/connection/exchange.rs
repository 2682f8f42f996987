//! An exchange with a server. A connection that stalls keeps up only what must not pass it.

use std::borrow::Cow;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{Effect, Error, LeaseId, Result};
use leasehold_driver::patience;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::open::{Connected, is_answer};
use super::{ConnectionOptions, Connections, Inner};
use crate::error;

/// How far apart two connections are that are left, or a fifth of the limit, if that is shorter.
const PASS_EVERY: Duration = Duration::from_secs(1);

/// How a request is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The leases that it is about.
    leases: Vec<LeaseId>,
    /// The shortest of their terms.
    term: Option<Duration>,
    /// It does no harm if it also acts later: on a connection that stalls it is not awaited, but sent again on another.
    may_repeat: bool,
    /// Later requests about its leases may act before it.
    may_be_passed: bool,
}

impl Request {
    /// One that changes nothing.
    pub(crate) fn reads() -> Self {
        Self { may_repeat: true, may_be_passed: true, ..Self::default() }
    }

    /// One that changes or ends these leases, or takes keys for a new one of this term. A late acquire would take the keys
    /// after its release, and a late release would end what was acquired after it.
    pub(crate) fn acts(leases: Vec<LeaseId>, term: Option<Duration>) -> Self {
        Self { leases, term, ..Self::default() }
    }

    /// One that extends these leases to these terms. A late renewal revives nothing (C6) and shortens nothing. A later
    /// lease of its id may get its term, but not for ever.
    pub(crate) fn renews(leases: Vec<LeaseId>, terms: &[Option<Duration>]) -> Self {
        let term = terms.iter().flatten().min().copied();
        Self { leases, term, may_repeat: true, may_be_passed: !terms.contains(&None) }
    }

    fn patience(&self, options: &ConnectionOptions) -> Duration {
        // The server answers nothing else while it waits for replicas.
        let replicas = if options.replicas > 0 { options.timeout / 2 } else { Duration::ZERO };
        patience(self.term, options.timeout) + replicas
    }
}

impl Connections {
    /// Connects, unless there is a connection.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.exchange(&Request::reads(), |_| ready(Ok(()))).await
    }

    /// One exchange, within the limit.
    pub(crate) async fn exchange<T, F>(
        &self,
        request: &Request,
        send: impl Fn(Connected) -> F,
    ) -> Result<T>
    where
        F: Future<Output = redis::RedisResult<T>>,
    {
        let (inner, limit) = (&self.0, self.0.options.timeout);
        let until = now() + limit;
        let mut was_sent = false;
        loop {
            let at_once = inner.current().and_then(|on| inner.enter(on, request, until));
            let mut sent = match at_once {
                Some(sent) => sent,
                None => Box::pin(inner.ready(request, until)).await.map_err(|error| {
                    // The first time, on a connection that stalled, it may have acted.
                    if was_sent { error.with_effect(Effect::Unknown) } else { error }
                })?,
            };
            let answer = pin!(send(sent.connected.clone()));
            match sent.answer(answer).await {
                Answer::Came(answer) => {
                    return answer.map_err(|failure| {
                        if !is_answer(&failure) {
                            inner.give_up(sent.connected.serial);
                        } else if failure.code() == Some("READONLY") {
                            // It was a master and is a replica now: connecting again finds the new master.
                            inner.pass(sent.connected.serial);
                        }
                        let error = error::of(&inner.server, failure);
                        if was_sent { error.with_effect(Effect::Unknown) } else { error }
                    });
                }
                Answer::Stalls => was_sent = true,
                Answer::Never => {
                    return Err(Error::unavailable(
                        Effect::Unknown,
                        format!("{} did not answer within {limit:?}", inner.server),
                    ));
                }
            }
        }
    }
}

impl Inner {
    /// Waits until the request may be sent.
    async fn ready<'a>(self: &Arc<Self>, request: &'a Request, until: Instant) -> Result<Sent<'a>> {
        let ready = async {
            loop {
                let changed = self.order.changed();
                let connected = self.connected().await?;
                if let Some(sent) = self.enter(connected, request, until) {
                    return Ok(sent);
                }
                changed.await;
            }
        };
        timeout_at(until, ready).await.unwrap_or_else(|_| Err(self.no_connection()))
    }

    /// The request, if it may be sent on this connection.
    fn enter<'a>(
        self: &Arc<Self>,
        connected: Connected,
        request: &'a Request,
        until: Instant,
    ) -> Option<Sent<'a>> {
        if !self.order.enter(&request.leases, connected.serial, request.may_be_passed) {
            return None;
        }
        let (inner, request) = (Arc::clone(self), Cow::Borrowed(request));
        Some(Sent { inner, connected, request, until, state: State::Awaited })
    }

    /// Leaves a connection that stalls, or leads to a replica, to the requests that it has, unless another was left lately: a
    /// server that is only slow must find the time to accept new ones. Whether new requests do not use it.
    fn pass(self: &Arc<Self>, serial: u64) -> bool {
        if self.is_current(serial) {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            let apart = PASS_EVERY.min(self.options.timeout / 5);
            if passed.is_some_and(|last| now().saturating_duration_since(last) < apart) {
                return false;
            }
            *passed = Some(now());
            drop(passed);
            self.give_up(serial);
        }
        true
    }

    fn no_connection(&self) -> Error {
        let (server, limit) = (&self.server, self.options.timeout);
        let why = if self.current().is_some() {
            ", on which it would not pass an unanswered request"
        } else if self.endpoint.has_tls() {
            "; a server without TLS does not answer a client with TLS: write redis:// in place of rediss:// \
             if it is one"
        } else {
            ": it does not answer"
        };
        Error::unavailable(
            Effect::NotApplied,
            format!("no connection to {server} within {limit:?}{why}"),
        )
    }
}

/// The answer to a request.
enum Answer<T> {
    Came(redis::RedisResult<T>),
    /// None yet, and the request is to be sent again on another connection.
    Stalls,
    /// None within the limit.
    Never,
}

/// A request on a connection, until it is answered or given up.
struct Sent<'a> {
    inner: Arc<Inner>,
    connected: Connected,
    request: Cow<'a, Request>,
    until: Instant,
    state: State,
}

enum State {
    /// Its caller waits for the answer.
    Awaited,
    /// Its caller has gone.
    Alone,
    /// It is answered or given up.
    Over,
}

impl Sent<'_> {
    /// Waits for the answer. From a connection that stalls the others go to a new one.
    async fn answer<T>(
        &mut self,
        mut answer: Pin<&mut impl Future<Output = redis::RedisResult<T>>>,
    ) -> Answer<T> {
        let (inner, until, serial) = (&self.inner, self.until, self.connected.serial);
        let patience = self.request.patience(&inner.options);
        let mut stalls = pin!(sleep_until(until.min(now() + patience)));
        let answer = loop {
            tokio::select! {
                biased;
                answer = answer.as_mut() => break Answer::Came(answer),
                () = &mut stalls => {}
            }
            if now() >= until {
                break Answer::Never;
            }
            if inner.pass(serial) && self.request.may_repeat {
                return Answer::Stalls;
            }
            stalls.as_mut().reset(until.min(now() + patience));
        };
        self.state = State::Over;
        answer
    }

    /// Waits until it is answered, though its caller has gone. The server answers in order.
    async fn settle(mut self) {
        let mut connected = self.connected.clone();
        let pong = pin!(connected.send(redis::cmd("PING"), false));
        self.answer(pong).await;
        // It is not sent again.
        self.state = State::Over;
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let (serial, keeps_order) = (self.connected.serial, !self.request.may_be_passed);
        let is_unknown = !matches!(self.state, State::Over);
        if is_unknown && (keeps_order || self.inner.is_current(serial)) {
            match (&self.state, Handle::try_current()) {
                (State::Awaited, Ok(runtime)) => {
                    let alone = Sent {
                        inner: Arc::clone(&self.inner),
                        connected: self.connected.clone(),
                        request: Cow::Owned(self.request.clone().into_owned()),
                        until: self.until,
                        state: State::Alone,
                    };
                    runtime.spawn(alone.settle());
                    return;
                }
                // With its runtime.
                _ => self.inner.give_up(serial),
            }
        }
        if keeps_order {
            self.inner.order.leave(&self.request.leases);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the timers of those who wait count on this clock")]
fn now() -> Instant {
    Instant::now()
}
