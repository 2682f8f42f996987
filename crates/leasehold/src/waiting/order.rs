use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Acquire, Claims, Error, Granted, Lease, LeaseId, Note, Owner, Renewal, Result, Ttl, Wait,
};

use crate::acquiring::{Keepalive, Options, What};
use crate::held::{Held, Plan};
use crate::locker::Inner;
use crate::own_ids::Named;

/// The term that is asked for first when the lease shall have no end (F6).
const FIRST_TERM: Duration = Duration::from_secs(30);

/// How often a lease without end is looked at, so that a break is noticed (F3).
const LOOK: Duration = Duration::from_secs(10);

/// The builder's options, checked against each other and against the store: what every try asks for.
pub(crate) struct Order {
    pub(crate) claims: Claims,
    pub(crate) wait: Wait,
    pub(crate) lease_id: Option<LeaseId>,
    pub(crate) label: Option<Arc<str>>,
    /// Without the instants that depend on the grant.
    pub(crate) plan: Plan,
    ttl: Ttl,
    min_hold: Duration,
    max_hold: Option<Duration>,
    owner: Option<Owner>,
    note: Note,
}

impl Order {
    /// Checks everything that can be checked before any I/O (C11).
    pub(crate) fn new(inner: &Inner, options: &Options) -> Result<Self> {
        let claims = match &options.what {
            What::Keys(keys) => Claims::all(keys.iter().cloned(), options.mode)?,
            What::Claims(claims) => claims.clone(),
            What::Resume(lease) => lease.claims.clone(),
        };
        let (lease_ttl, lease_owner) = match &options.what {
            What::Resume(lease) => (Some(lease.ttl), lease.owner.clone()),
            What::Keys(_) | What::Claims(_) => (None, None),
        };
        let ttl = options.ttl.or(lease_ttl).map_or_else(|| Ttl::new(FIRST_TERM), Ok)?;
        let ttl = ttl.max(Ttl::new(inner.can.min_term.max(Ttl::MIN))?);
        let term = match ttl.duration() {
            Some(ttl) => Ttl::new(ttl.saturating_add(options.lock_delay))?,
            None => Ttl::NEVER,
        };
        if options.max_hold.is_some_and(|max| max < options.min_hold) {
            return Err(Error::invalid_input("max_hold is shorter than min_hold"));
        }
        let mut note = inner.note.clone();
        if let Some(comment) = &options.comment {
            note = note.with_comment(comment)?;
        }
        let order = Self {
            claims,
            wait: options.wait,
            lease_id: options.lease_id.clone(),
            label: options.label.clone(),
            plan: Plan {
                interval: interval(options.keepalive, ttl)?,
                jitter: options.keepalive == Keepalive::Auto && !ttl.is_never(),
                term,
                lock_delay: options.lock_delay,
                min_hold_until: None,
                max_hold_until: None,
                drift: inner.keeper.drift,
                label: options.label.clone(),
            },
            ttl,
            min_hold: options.min_hold,
            max_hold: options.max_hold,
            owner: options.owner.clone().or(lease_owner),
            note,
        };
        order.admit(inner, options.fenced)?;
        Ok(order)
    }

    /// What adopting `lease` asks for.
    pub(crate) fn adopting(inner: &Inner, lease: &Lease) -> Result<Self> {
        Self::new(inner, &Options::of(What::Resume(Box::new(lease.clone())), Wait::No))
    }

    fn admit(&self, inner: &Inner, fenced: bool) -> Result<()> {
        let can = &inner.can;
        let id = LeaseId::foreign(b"probe")?;
        can.admit(&Acquire::new(id.clone(), self.claims.clone(), self.first_term(Duration::ZERO)))?;
        can.admit(&Renewal::extend(id, self.claims.clone(), self.plan.term))?;
        let lacks =
            |what: &str| Err(Error::unsupported(format!("the store {} has no {what}", can.name)));
        if fenced && !can.tokens {
            return lacks("fencing tokens");
        }
        if !self.min_hold.is_zero() && !can.keep {
            return lacks("keeping a key taken after a release, which min_hold needs");
        }
        Ok(())
    }

    /// Callers with an end in view that may wait, under ids of their own (F1).
    pub(crate) fn stands_in_line(&self) -> bool {
        self.lease_id.is_none() && matches!(self.wait, Wait::UpTo(_) | Wait::Forever)
    }

    /// The request of one try.
    pub(crate) fn request(&self, id: LeaseId, now: Duration) -> Acquire {
        let request = Acquire::new(id, self.claims.clone(), self.first_term(now))
            .with_note(self.note.clone());
        match &self.owner {
            Some(owner) => request.with_owner(owner.clone()),
            None => request,
        }
    }

    fn first_term(&self, now: Duration) -> Ttl {
        let mut plan = self.plan_from(now);
        if plan.term.is_never() {
            plan.term = Ttl::new(FIRST_TERM).unwrap_or(plan.term);
        }
        plan.term_at(now)
    }

    /// The plan of a lease whose grant or adoption was asked for at `sent`.
    pub(crate) fn plan_from(&self, sent: Duration) -> Plan {
        let mut plan = self.plan.clone();
        plan.min_hold_until =
            (!self.min_hold.is_zero()).then(|| sent.saturating_add(self.min_hold));
        plan.max_hold_until = self.max_hold.map(|max| sent.saturating_add(max));
        plan
    }

    /// The state of the lease `id` that was granted.
    pub(crate) fn held(
        &self,
        id: LeaseId,
        granted: &Granted,
        sent: Duration,
        named: Option<Arc<Named>>,
    ) -> Held {
        let mut lease = Lease::new(id, self.claims.clone(), self.ttl);
        lease.token = granted.token;
        lease.owner.clone_from(&self.owner);
        Held::new(lease, granted.fresh, self.plan_from(sent), named, sent, granted.remaining)
    }
}

fn interval(keepalive: Keepalive, ttl: Ttl) -> Result<Option<Duration>> {
    match (keepalive, ttl.duration()) {
        (Keepalive::Off, _) => Ok(None),
        (Keepalive::Auto, Some(ttl)) => Ok(Some(ttl / 3)),
        (Keepalive::Auto, None) => Ok(Some(LOOK)),
        (Keepalive::Every(every), Some(ttl)) if every >= ttl => Err(Error::invalid_input(format!(
            "renewal every {every:?} was asked for, but the TTL is {ttl:?}; renew more often"
        ))),
        (Keepalive::Every(every), _) => Ok(Some(every)),
    }
}
