//! What is modelled, and the one rule that is switched off.

use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{AcquireRequest, Claims, Key, LeaseId, Mode, Now, Remaining, RenewEntry, Ttl};

/// One unit of the model's time.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Time is relative, so a node's clocks always show this. Tokens then count from 1.
pub(crate) const NOW: Now = Now { boot: Duration::from_secs(1_000), wall_micros: 1 };

/// The bounds of one model, and what may happen in it.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// How many tries all clients have together.
    pub(crate) tries: u8,
    /// How many renewals all leases have together.
    pub(crate) renewals: u8,
    /// The term, and the longest term allowed, in ticks.
    pub(crate) term: u8,
    /// Renewals may also request a term of one tick.
    pub(crate) short_renewals: bool,
    pub(crate) fenced: bool,
    /// The clock of one node, from which it mints tokens, runs ahead.
    pub(crate) clock_ahead: bool,
    /// A holder may acquire its lease again instead of renewing it.
    pub(crate) again: bool,
    /// Another process may adopt the lease of a holder that has died.
    pub(crate) adopts: bool,
    /// A client waits for the quorum's answer to its release; otherwise it only sends it.
    pub(crate) awaits_release: bool,
    /// How many leases are ended by force.
    pub(crate) breaks_by_force: u8,
    /// They are ended although requests of their holders are in flight.
    pub(crate) breaks_unsettled: bool,
    /// A lease counts as ended although a node has not answered.
    pub(crate) breaks_unanswered: bool,
    /// How many times nodes may forget everything.
    pub(crate) crashes: u8,
    /// How long a node that forgot refuses to grant, in ticks.
    pub(crate) quarantine: u8,
    /// Each node's clock may gain a tick, which the holders' allowance covers.
    pub(crate) drift: bool,
    /// The broken rule; `None` in a model that must hold.
    pub(crate) fault: Option<Fault>,
}

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every try of a client has the same id.
    OneIdForAllTries,
    /// A renewal that missed its majority puts the old terms back.
    PutsBack,
    /// A node to which a renewal adds the lease again counts as having held it.
    CountsReAdditions,
    /// The holder counts its term from the reply.
    CountsFromReply,
    /// An acquire may arrive after the term of its lease, and another process then adopts the lease.
    AcquireOutlivesLease,
    /// There is no allowance for clocks that run at different rates.
    NoDriftAllowance,
    /// The token of a grant is not written back to a majority.
    NoWriteBack,
    /// A fenced quorum has nodes that forget, although they are in quarantine.
    FencedThoughItForgets,
    /// A node that forgot grants before the longest term has passed.
    ShortQuarantine,
    /// A release does not wait for the acquire that it rolls back.
    ReleaseOvertakes,
    /// A renewal may shorten the term.
    RenewalShortens,
    /// A renewal also asks nodes on which the release of a failed re-acquire is not answered yet.
    CountsUnsettled,
    /// A lease that is ended by force is removed in one round, however many nodes had it.
    BreaksOnce,
    /// Half of the nodes suffice.
    HalfIsEnough,
}

impl Rules {
    /// Three nodes that forget nothing, two clients, two tries and one renewal.
    pub(crate) fn quorum() -> Self {
        Self {
            nodes: 3,
            clients: 2,
            tries: 2,
            renewals: 1,
            term: 2,
            short_renewals: false,
            fenced: false,
            clock_ahead: false,
            again: false,
            adopts: false,
            awaits_release: false,
            breaks_by_force: 0,
            breaks_unsettled: false,
            breaks_unanswered: false,
            crashes: 0,
            quarantine: 0,
            drift: false,
            fault: None,
        }
    }

    /// Whether leases are ended by force in cases where that may fail.
    pub(crate) fn breaks_blindly(&self) -> bool {
        self.breaks_unsettled || self.breaks_unanswered
    }

    pub(crate) fn breaks(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// How many more ticks a holder may believe in a lease of which `rest` ticks remained when it asked, `age`
    /// ticks ago.
    pub(crate) fn believed(&self, rest: u8, age: u8) -> u8 {
        let age = if self.breaks(Fault::CountsFromReply) { 0 } else { age };
        let allowed = self.drift && !self.breaks(Fault::NoDriftAllowance);
        let drift = Drift::new(0, if allowed { TICK } else { Duration::ZERO });
        let sent = NOW.boot - ticks(age);
        let deadline = drift.deadline(sent, Remaining::For(ticks(rest)));
        whole_ticks(deadline.expect("finite").saturating_sub(NOW.boot))
    }
}

pub(crate) fn ticks(count: u8) -> Duration {
    TICK * u32::from(count)
}

pub(crate) fn whole_ticks(duration: Duration) -> u8 {
    assert_eq!(duration.subsec_nanos(), 0, "the model knows whole ticks only");
    u8::try_from(duration.as_secs()).expect("a small bound")
}

/// The key and the ids that requests name.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) key: Key,
    claims: Claims,
    ids: Vec<LeaseId>,
}

impl Names {
    pub(crate) fn new(rules: &Rules) -> Self {
        let key = Key::new("key").expect("valid");
        let id = |attempt: u8| LeaseId::foreign(&[b'a' + attempt]).expect("valid");
        Self {
            claims: Claims::one(key.clone(), Mode::Exclusive),
            ids: (0..=rules.tries).map(id).collect(),
            key,
        }
    }

    pub(crate) fn id(&self, attempt: u8) -> &LeaseId {
        &self.ids[usize::from(attempt)]
    }

    pub(crate) fn attempt(&self, id: &LeaseId) -> u8 {
        let at = self.ids.iter().position(|known| known == id).expect("an id of the model");
        u8::try_from(at).expect("few")
    }

    pub(crate) fn acquire(&self, attempt: u8, term: u8) -> AcquireRequest {
        AcquireRequest::new(self.id(attempt).clone(), self.claims.clone(), ttl(term))
    }

    pub(crate) fn renewal(&self, attempt: u8, term: u8) -> RenewEntry {
        RenewEntry::extend(self.id(attempt).clone(), self.claims.clone(), ttl(term))
    }
}

fn ttl(term: u8) -> Ttl {
    Ttl::new(ticks(term)).expect("at least a tick")
}
