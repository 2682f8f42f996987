use std::sync::Arc;
use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{
    AcquireRequest, Capabilities, Claims, Error, Feature, Granted, GroupName, Lease, LeaseId,
    Level, Mode, Remaining, Result, Ttl, Wait,
};

use super::options::{AttemptObserver, Keepalive, LockOptions, LockTarget};
use crate::lease::ids::{Caller, Ownership};
use crate::lease::state::{HoldPolicy, LeaseState, at_least};
use crate::locker::Inner;

/// The first term of a lease without end (F6).
const FIRST_TERM: Duration = Duration::from_secs(30);

/// How often a lease without end is checked, so that a break is noticed (F3).
const LOOK: Duration = Duration::from_secs(10);

/// The builder's options, checked against each other and against the store: what every try requests.
pub(crate) struct LockSpec {
    pub(crate) claims: Claims,
    pub(crate) wait: Wait,
    /// The lowest level that the store may have.
    pub(crate) level: Level,
    pub(crate) lease_id: Option<LeaseId>,
    /// The lease to continue, until it is known to have ended.
    pub(crate) resuming: Option<Lease>,
    /// Without the instants that depend on the grant.
    pub(crate) policy: HoldPolicy,
    pub(crate) ttl: Ttl,
    min_hold: Duration,
    max_hold: Option<Duration>,
    pub(crate) observer: Option<Arc<dyn AttemptObserver>>,
    pub(crate) group: Option<GroupName>,
}

impl LockSpec {
    /// Checks everything that needs no I/O (C11).
    pub(crate) fn new(inner: &Inner, options: Box<LockOptions>) -> Result<Self> {
        let keeper = &inner.keeper;
        let mode = options.mode.unwrap_or(Mode::Exclusive);
        let (claims, resuming) = match options.what {
            LockTarget::Key(key) => (Claims::one(key, mode), None),
            LockTarget::Keys(keys) => (Claims::all(keys, mode)?, None),
            LockTarget::Claims(_) | LockTarget::Resume(_) if options.mode.is_some() => {
                return Err(Error::invalid_input(
                    "shared() or permits() is set, but each claim has its own mode",
                ));
            }
            LockTarget::Claims(claims) => (claims, None),
            LockTarget::Resume(lease) => (lease.claims.clone(), Some(*lease)),
        };
        if options.fenced && resuming.as_ref().is_some_and(|lease| lease.token.is_none()) {
            return Err(Error::invalid_input(
                "fenced() is set, but the lease to continue has no token",
            ));
        }
        let ttl = options.ttl.or(resuming.as_ref().map(|lease| lease.ttl));
        let ttl = ttl.map_or_else(|| Ttl::new(FIRST_TERM.min(keeper.can.max_term)), Ok)?;
        let ttl = ttl.max(Ttl::new(keeper.can.min_term.max(Ttl::MIN))?);
        let term = match ttl.duration() {
            Some(ttl) => Ttl::new(ttl.saturating_add(options.lock_delay))?,
            None => Ttl::NEVER,
        };
        if options.max_hold.is_some_and(|max| max < options.min_hold) {
            return Err(Error::invalid_input(format!(
                "max_hold is {:?}, which is shorter than min_hold, {:?}",
                options.max_hold.unwrap_or_default(),
                options.min_hold
            )));
        }
        let mut note = inner.note.clone();
        if let Some(host) = &options.host {
            note = note.with_host(host)?;
        }
        if let Some(pid) = options.pid {
            note = note.with_pid(pid);
        }
        if let Some(program) = &options.program {
            note = note.with_program(program)?;
        }
        if let Some(comment) = &options.comment {
            note = note.with_comment(comment)?;
        }
        let spec = Self {
            claims,
            wait: options.wait,
            level: options.level,
            lease_id: options.lease_id,
            policy: HoldPolicy {
                interval: interval(options.keepalive, ttl, keeper.drift)?,
                jitter: options.keepalive == Keepalive::Auto && !ttl.is_never(),
                term,
                lock_delay: options.lock_delay,
                min_hold_until: None,
                max_hold_until: None,
                drift: keeper.drift,
                note,
                label: options.label,
                caller: options.caller.unwrap_or_else(Caller::current),
            },
            ttl,
            min_hold: options.min_hold,
            max_hold: options.max_hold,
            group: options.group.or(resuming.as_ref().and_then(|lease| lease.group.clone())),
            resuming,
            observer: options.observer,
        };
        spec.admit(&keeper.can, options.fenced)?;
        Ok(spec)
    }

    /// The spec for adopting `lease`.
    pub(crate) fn adopting(inner: &Inner, lease: &Lease) -> Result<Self> {
        let what = LockTarget::Resume(Box::new(lease.clone()));
        Self::new(inner, Box::new(LockOptions::of(what, Wait::No)))
    }

    /// The user's metrics label.
    pub(crate) fn label(&self) -> Option<&Arc<str>> {
        self.policy.label.as_ref()
    }

    fn admit(&self, can: &Capabilities, fenced: bool) -> Result<()> {
        can.admit(&self.claims)?;
        can.admit(&self.first_term())?;
        can.admit(&self.policy.term)?;
        if fenced && !can.tokens {
            return Err(can.lacks(Feature::Tokens));
        }
        if !self.min_hold.is_zero() && !can.keep {
            return Err(can.lacks(Feature::Keep));
        }
        Ok(())
    }

    /// Whether its caller may queue: its wait is limited by time or not at all (F1).
    pub(crate) fn may_queue(&self) -> bool {
        matches!(self.wait, Wait::UpTo(_) | Wait::Forever)
    }

    /// The request of one try.
    pub(crate) fn request(&self, id: LeaseId) -> AcquireRequest {
        let mut request = AcquireRequest::new(id, self.claims.clone(), self.first_term())
            .with_note(self.policy.note.clone());
        // The lease with the caller's own id may already be held: if the request fails, a quorum must not roll all
        // of it back.
        if self.lease_id.is_some() {
            request = request.again(None);
        }
        match &self.group {
            Some(group) => request.with_group(group.clone()),
            None => request,
        }
    }

    /// Finite, and at least `min_hold`.
    fn first_term(&self) -> Ttl {
        let finite = Ttl::new(self.policy.term.duration().unwrap_or(FIRST_TERM));
        at_least(finite.unwrap_or(self.policy.term), self.min_hold)
    }

    /// The policy of a lease that was requested at `sent`.
    pub(crate) fn policy_from(&self, sent: Duration) -> HoldPolicy {
        let mut policy = self.policy.clone();
        policy.min_hold_until =
            (!self.min_hold.is_zero()).then(|| sent.saturating_add(self.min_hold));
        policy.max_hold_until = self.max_hold.map(|max| sent.saturating_add(max));
        policy
    }

    /// The state of the granted lease `id`.
    pub(crate) fn held(
        &self,
        id: LeaseId,
        granted: Granted,
        (sent, now): (Duration, Duration),
        ownership: Arc<Ownership>,
    ) -> Arc<LeaseState> {
        let mut lease = Lease::new(id, self.claims.clone(), self.ttl);
        lease.token = granted.token;
        lease.group.clone_from(&self.group);
        // A minted id is requested once, whatever happened to the first reply.
        let fresh = self.lease_id.is_none() || granted.fresh;
        let Granted { remaining, nodes, .. } = granted;
        LeaseState::new(
            lease,
            fresh,
            self.policy_from(sent),
            ownership,
            (sent, now),
            remaining,
            nodes,
        )
    }
}

fn interval(keepalive: Keepalive, ttl: Ttl, drift: Drift) -> Result<Option<Duration>> {
    let every = match keepalive {
        Keepalive::Off => return Ok(None),
        Keepalive::Auto => return Ok(Some(ttl.duration().map_or(LOOK, |ttl| ttl / 3))),
        Keepalive::Every(every) => every,
    };
    let believed = ttl
        .duration()
        .map(|ttl| drift.deadline(Duration::ZERO, Remaining::For(ttl)).unwrap_or_default());
    match believed {
        Some(believed) if every >= believed => Err(Error::invalid_input(format!(
            "the renewal interval is {every:?}, but a lease with a TTL of {ttl} is trusted for only \
             {believed:?}; renew more often"
        ))),
        _ => Ok(Some(every)),
    }
}
