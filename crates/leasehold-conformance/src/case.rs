use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::{
    Capabilities, Effect, Error, ErrorKind, EvictRequest, FencingToken, Filter, Granted, LeaseId,
    Mode, ReleaseRequest, RenewRequest, Store, Ttl,
};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::client::Client;
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Ended, Failure, Reports, Result};

/// How a case ended.
pub(crate) type CaseResult = Result<Ended>;

/// The result of a case that must step the store's wall clock, where that is impossible.
pub(crate) fn no_wall_step() -> Ended {
    Ended::CannotHere(
        "the wall clock of this store is the machine's, which is not stepped".to_owned(),
    )
}

pub(crate) const PASSED: CaseResult = Ok(Ended::Passed);

/// One named claim about a store.
pub(crate) struct Case<B: Backing> {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a Fixture<B>) -> BoxFuture<'a, CaseResult>,
}

/// What a case needs that not every store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Shared,
    SharedLimit,
    /// A limit of the store's own on the shared holders of a key.
    MaxHolders,
    ManyKeys,
    Never,
    Keep,
    Tokens,
    /// Tokens that can be raised.
    Raise,
    Notifications,
    ReportsExpired,
    ComparesTokens,
    /// Records end for others after they have ended for their holders.
    Margin,
    /// Lease ids of any bytes.
    AnyId,
    /// Keys that are any text, beside any other.
    AnyKey,
    ReportsGroup,
    ReportsNote,
    ReportsAge,
    ReportsHolder,
    ReportsEvicted,
    QuietReleases,
    /// A state that forgets counters after [`FORGET_AFTER`](crate::cases::FORGET_AFTER).
    Forgetting,
}

impl Need {
    fn is_met(self, can: &Capabilities, reports: &Reports) -> bool {
        match self {
            Self::Shared => can.shared,
            Self::SharedLimit => can.shared_limit,
            Self::MaxHolders => can.max_holders.is_some(),
            Self::ManyKeys => can.many_keys,
            Self::Never => can.never,
            Self::Keep => can.keep,
            Self::Tokens => can.tokens,
            Self::Raise => can.raise,
            Self::Notifications => can.notifications,
            Self::ReportsExpired => can.reports_expired,
            Self::ComparesTokens => can.compares_tokens,
            Self::Margin => !can.margin.is_zero(),
            Self::AnyId => !can.text_ids,
            Self::AnyKey => reports.any_key,
            Self::ReportsGroup => reports.group,
            Self::ReportsNote => reports.note,
            Self::ReportsAge => reports.age,
            Self::ReportsHolder => reports.holder,
            Self::ReportsEvicted => reports.evicted,
            Self::QuietReleases => reports.quiet,
            Self::Forgetting => true,
        }
    }

    /// Checks that a store without this feature refuses it or does without, and never silently weakens it (C11).
    pub(crate) async fn refused<B: Backing>(self, fixture: &Fixture<B>) -> Result<String> {
        let (name, client) = (fixture.can.name, &fixture.client);
        let before = fixture.observe().await?;
        let lacking = match self {
            Self::Shared => {
                unsupported(&reject(client, &fixture.shared("job")).await?)?;
                "shared locks"
            }
            Self::SharedLimit => {
                unsupported(&reject(client, &fixture.one("job", at_most(2))).await?)?;
                "limit on shared holders"
            }
            Self::MaxHolders => {
                return Ok(format!("{name} has no limit of its own on shared holders"));
            }
            Self::ManyKeys => {
                let both = fixture.attempt(all_of(&["a", "b"], Mode::Exclusive));
                unsupported(&reject(client, &both).await?)?;
                "leases of several keys"
            }
            Self::Never => {
                let request = fixture.exclusive("job").renew(Ttl::NEVER);
                unsupported(&rejected(client.store().renew(&request).await)?)?;
                "leases without end"
            }
            Self::Keep => {
                let ending = fixture.exclusive("job").ending().with_keep(fixture.ticks(5));
                let request = ReleaseRequest::new(vec![ending]);
                unsupported(&rejected(client.store().release(&request).await)?)?;
                "keeping after a release"
            }
            Self::Tokens => {
                let lease = fixture.exclusive("job");
                let granted = grant(client, &lease).await?;
                ensure_eq!(granted.token, None, "the token of a store that has none");
                released(client, &lease).await?;
                "tokens"
            }
            Self::Raise => {
                let lease = fixture.exclusive("job");
                let granted = grant(client, &lease).await?;
                let token = FencingToken::new(FencingToken::MAX)?;
                let raised = lease.renewal(lease.term).with_token_raised_to(token);
                let request = RenewRequest::new(vec![raised]);
                unsupported(&rejected(client.store().renew(&request).await)?)?;
                let confirmed = client.confirm(&lease).await?;
                ensure_eq!(confirmed.token, granted.token, "the token after a refused raise");
                released(client, &lease).await?;
                "tokens that can be raised"
            }
            Self::Notifications => {
                let keys = [key("job")];
                let mut wakeups = client.store().subscribe(&keys).await?;
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                released(client, &lease).await?;
                let woken = wakeups.next().now_or_never();
                ensure!(woken.is_none(), "a store without wake-ups woke for {woken:?}");
                "wake-ups"
            }
            Self::ComparesTokens => {
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                let other = FencingToken::new(1).expect("it is in range");
                client
                    .release_all(ReleaseRequest::new(vec![lease.ending().with_token(other)]))
                    .await?;
                not_held(client, &lease).await?;
                "comparison of tokens"
            }
            Self::ReportsExpired => {
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                fixture.pass(11).await;
                not_held(client, &lease).await?;
                "memory of expired leases"
            }
            Self::Margin => {
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                fixture.pass(10).await;
                let next = fixture.exclusive("job");
                grant(client, &next).await?;
                released(client, &next).await?;
                "margin"
            }
            Self::AnyId => {
                let id = LeaseId::foreign(&[0xff])?;
                unsupported(&reject(client, &fixture.exclusive("job").with_id(&id)).await?)?;
                "lease ids of any bytes"
            }
            Self::AnyKey => {
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                unsupported(&reject(client, &fixture.exclusive("job_x")).await?)?;
                unsupported(&reject(client, &fixture.exclusive("'")).await?)?;
                released(client, &lease).await?;
                "keys of any text"
            }
            Self::ReportsGroup => return Ok(format!("{name} does not report groups")),
            Self::ReportsNote => return Ok(format!("{name} does not report notes")),
            Self::ReportsAge => return Ok(format!("{name} does not report ages")),
            Self::ReportsHolder => {
                return Ok(format!("{name} does not name the holder in a refusal"));
            }
            Self::ReportsEvicted => return Ok(format!("{name} does not report evictions")),
            Self::QuietReleases => return Ok(format!("{name} wakes waiters at every change")),
            Self::Forgetting => {
                let lease = fixture.exclusive("job");
                grant(client, &lease).await?;
                released(client, &lease).await?;
                let before = fixture.observe().await?;
                if fixture.wall_micros().is_some() {
                    fixture.pass_for(Duration::from_secs(1_000 * 24 * 60 * 60)).await;
                }
                let purged = client.evict(EvictRequest::expired(Filter::default())).await?;
                ensure_eq!(purged.counters_forgotten, 0, "counters that are never forgotten");
                let after = fixture.observe().await?;
                ensure_eq!(
                    (after.counters, after.mark),
                    (before.counters, before.mark),
                    "what is remembered of tokens after years"
                );
                "end of counters"
            }
        };
        let after = fixture.observe().await?;
        ensure_eq!(after.essence().0, before.essence().0, "the leases after a refusal");
        Ok(format!("{name} has no {lacking} and works without"))
    }
}

impl<B: Backing> Case<B> {
    /// Runs the case, or checks the refusal of what the store cannot do.
    pub(crate) async fn run(&self, fixture: &Fixture<B>) -> CaseResult {
        match self.unmet(fixture) {
            Some(need) => need.refused(fixture).await.map(Ended::NotApplicable),
            None => (self.run)(fixture).await,
        }
    }

    /// What the case needs and this store lacks.
    pub(crate) fn unmet(&self, fixture: &Fixture<B>) -> Option<Need> {
        self.needs.iter().copied().find(|need| !need.is_met(&fixture.can, &fixture.reports))
    }
}

/// The error of a request that the store must not try.
#[track_caller]
pub(crate) fn rejected<T: std::fmt::Debug>(answer: leasehold_core::Result<T>) -> Result<Error> {
    match answer {
        Err(error) => Ok(error),
        Ok(answer) => Err(Failure::new(format!("not rejected but answered: {answer:?}"))),
    }
}

/// Checks that the store reports that it cannot do this, and did nothing.
#[track_caller]
pub(crate) fn unsupported(error: &Error) -> Result {
    has_no_effect(error, ErrorKind::Unsupported)
}

/// Checks that the store reports that no store could do this, and did nothing.
#[track_caller]
pub(crate) fn invalid_input(error: &Error) -> Result {
    has_no_effect(error, ErrorKind::InvalidInput)
}

#[track_caller]
fn has_no_effect(error: &Error, kind: ErrorKind) -> Result {
    ensure_eq!(error.kind(), kind, "the kind of {error:?}");
    ensure_eq!(error.effect(), Effect::NotApplied, "the effect of {error:?}");
    Ok(())
}

/// Lists the cases of a file, each with what it needs.
macro_rules! cases {
    ($($name:ident $([$($need:ident),+])?),+ $(,)?) => {
        pub(crate) fn cases<B: $crate::Backing>() -> Vec<$crate::case::Case<B>> {
            vec![$($crate::case::Case {
                name: stringify!($name),
                needs: &[$($($crate::case::Need::$need),+)?],
                run: |fixture| Box::pin($name(fixture)),
            }),+]
        }
    };
}

// Boxed: the futures of all features together are too large for the stack of a thread.

#[track_caller]
fn grant<'a, S: Store>(
    client: &'a Client<S>,
    attempt: &'a Attempt,
) -> BoxFuture<'a, Result<Granted>> {
    client.grant(attempt).boxed()
}

#[track_caller]
fn reject<'a, S: Store>(
    client: &'a Client<S>,
    attempt: &'a Attempt,
) -> BoxFuture<'a, Result<Error>> {
    client.reject(attempt).boxed()
}

#[track_caller]
fn released<'a, S: Store>(client: &'a Client<S>, attempt: &'a Attempt) -> BoxFuture<'a, Result> {
    client.released(attempt).boxed()
}

#[track_caller]
fn not_held<'a, S: Store>(client: &'a Client<S>, attempt: &'a Attempt) -> BoxFuture<'a, Result> {
    client.not_held(attempt).boxed()
}

/// Opens a client behind proxies; without a network between clients and state the case ends here.
macro_rules! behind_proxies {
    ($fixture:ident) => {
        match $fixture.behind_proxies().await? {
            Ok(behind) => behind,
            Err(ended) => return Ok(ended),
        }
    };
}

pub(crate) use {behind_proxies, cases};
