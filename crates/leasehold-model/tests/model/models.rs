//! The models.

use crate::promises::{EXCLUSION, Event, LEFT, OVER, REVIVAL, TOKENS};
use crate::rules::{Fault, Rules};
use crate::world::{Action, Step};

/// A model and what its search must show.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
    /// What happens before the search begins.
    pub(crate) before: Vec<Action>,
    pub(crate) expected: Expected,
}

#[derive(Debug)]
pub(crate) enum Expected {
    /// Every promise holds in every state, and these events occur.
    Holds(Vec<Event>),
    /// This promise breaks.
    Breaks(&'static str),
}

/// The models that must hold, with small or large bounds, their twins that must not, and models of the limits of a
/// promise.
pub(crate) fn all(large: bool) -> Vec<Named> {
    let mut all = sound(large);
    all.extend(twins());
    all.extend(limits());
    all
}

fn sound(large: bool) -> Vec<Named> {
    let quorum = Rules::quorum;
    let pick = |small, of_large| if large { of_large } else { small };
    let mut sound = vec![
        holds("one-store", Rules { clients: 3, tries: 3, renewals: pick(2, 3), ..one_store() }),
        holds("quorum", Rules { renewals: 2, ..quorum() }),
        holds("quorum-of-two", Rules { nodes: 2, renewals: 2, ..quorum() }),
        holds("quorum-three-tries", Rules { tries: 3, renewals: pick(0, 1), ..quorum() }),
        holds("quorum-shorter-terms", shortening()),
        holds("quorum-fenced", Rules { renewals: pick(0, 1), ..fenced() }),
        holds("quorum-quarantined", Rules { crashes: pick(1, 2), ..forgetful(2) }),
        holds("quorum-drift", Rules { renewals: pick(0, 1), ..drifting() }),
        holds("quorum-adopt", Rules { renewals: pick(1, 2), ..adopting() }),
        holds("quorum-released", Rules { awaits_release: true, renewals: 0, ..quorum() }),
        holds("quorum-broken", Rules { tries: pick(1, 2), ..broken() }),
        holds("quorum-broken-blindly", Rules { renewals: pick(0, 1), ..broken_blindly() }),
        holds("quorum-again", Rules { renewals: pick(1, 2), ..again() }),
    ];
    if large {
        sound.extend([
            holds("quorum-three-clients", Rules { clients: 3, tries: 3, renewals: 0, ..quorum() }),
            holds("quorum-longer-term", Rules { term: 3, ..quorum() }),
        ]);
    }
    sound
}

fn twins() -> Vec<Named> {
    let quorum = Rules::quorum;
    let tries = |tries, rules| Rules { tries, renewals: 0, ..rules };
    vec![
        one_id("twin-one-store-one-id", Rules { tries: 3, ..one_store() }),
        breaks("twin-one-store-from-reply", Fault::CountsFromReply, EXCLUSION, one_store()),
        breaks("twin-one-store-shortens", Fault::RenewalShortens, EXCLUSION, one_store()),
        breaks("twin-one-store-overtakes", Fault::ReleaseOvertakes, LEFT, one_store()),
        one_id("twin-one-id", tries(3, quorum())),
        breaks("twin-from-reply", Fault::CountsFromReply, EXCLUSION, quorum()),
        breaks("twin-shortens", Fault::RenewalShortens, EXCLUSION, shortening()),
        breaks("twin-put-back", Fault::PutsBack, EXCLUSION, Rules { renewals: 2, ..quorum() })
            .after(held_by_two()),
        breaks("twin-overtakes", Fault::ReleaseOvertakes, LEFT, quorum()),
        breaks("twin-half-of-two", Fault::HalfIsEnough, EXCLUSION, Rules { nodes: 2, ..quorum() }),
        breaks("twin-half-of-four", Fault::HalfIsEnough, EXCLUSION, Rules { nodes: 4, ..quorum() }),
        breaks("twin-no-drift-allowance", Fault::NoDriftAllowance, EXCLUSION, drifting()),
        breaks("twin-no-write-back", Fault::NoWriteBack, TOKENS, fenced()),
        breaks("twin-fenced-forgets", Fault::FencedThoughItForgets, TOKENS, {
            Rules { fenced: true, ..tries(3, forgetful(2)) }
        }),
        breaks("twin-no-quarantine", Fault::ShortQuarantine, EXCLUSION, forgetful(0)),
        breaks("twin-short-quarantine", Fault::ShortQuarantine, EXCLUSION, forgetful(1)),
        breaks("twin-re-additions-count", Fault::CountsReAdditions, REVIVAL, adopting()),
        breaks("twin-outlives-lease", Fault::AcquireOutlivesLease, REVIVAL, adopting()),
        breaks("twin-counts-unsettled", Fault::CountsUnsettled, EXCLUSION, {
            Rules { renewals: 2, ..again() }
        })
        .after(asking_again()),
        breaks("twin-breaks-once", Fault::BreaksOnce, OVER, {
            Rules { renewals: 2, tries: 1, ..broken() }
        }),
    ]
}

/// What the code does not promise: a lease that was ended by force lives on.
fn limits() -> Vec<Named> {
    let one = || Rules { tries: 1, ..broken() };
    vec![
        outlives("limit-break-unanswered", Rules { breaks_unanswered: true, ..one() }),
        outlives("limit-break-unsettled", Rules { breaks_unsettled: true, ..one() }),
        outlives("limit-break-two-renewals", Rules { renewals: 2, ..one() }),
    ]
}

fn one_store() -> Rules {
    Rules { nodes: 1, short_renewals: true, ..Rules::quorum() }
}

fn shortening() -> Rules {
    Rules { short_renewals: true, ..Rules::quorum() }
}

fn fenced() -> Rules {
    Rules { fenced: true, clock_ahead: true, ..Rules::quorum() }
}

fn forgetful(quarantine: u8) -> Rules {
    Rules { crashes: 1, quarantine, ..Rules::quorum() }
}

fn drifting() -> Rules {
    Rules { drift: true, renewals: 0, ..Rules::quorum() }
}

fn adopting() -> Rules {
    Rules { adopts: true, ..Rules::quorum() }
}

fn broken() -> Rules {
    Rules { breaks_by_force: 1, ..Rules::quorum() }
}

fn broken_blindly() -> Rules {
    Rules { breaks_unsettled: true, breaks_unanswered: true, ..broken() }
}

fn again() -> Rules {
    Rules { again: true, ..Rules::quorum() }
}

/// A client holds the lease on two of three nodes; its request to the third is in flight.
fn held_by_two() -> Vec<Action> {
    // In the order of a state, a client that has asked comes after one that has not, and a node that has answered
    // after one that has not.
    let deliver = || Action::Deliver { node: 0, client: 1 };
    let decide = Step::Decide { read: 0b110, last: false };
    vec![
        Action::Client { client: 0, step: Step::Try },
        deliver(),
        deliver(),
        Action::Client { client: 1, step: decide },
    ]
}

/// The same client acquires its lease again, and one node has answered.
fn asking_again() -> Vec<Action> {
    let mut before = held_by_two();
    before.push(Action::Client { client: 1, step: Step::AcquireAgain });
    before.push(Action::Deliver { node: 0, client: 1 });
    before
}

fn holds(name: &'static str, rules: Rules) -> Named {
    use Event::{
        Adopted, Broken, ConfirmedAgain, Expired, Granted, GrantedAfterCrash, Healed, Lost,
        ReAdded, Refused, Released, RenewalFailed, Renewed, RolledBack, SplitVote, TakenOver,
        WrittenBack,
    };
    let renews = rules.renewals > 0;
    let due = [
        (true, &[Granted, Expired, RolledBack][..]),
        (rules.tries > 1, &[Refused, TakenOver]),
        (rules.tries > 1 && rules.nodes > 1, &[SplitVote]),
        (renews, &[Renewed, RenewalFailed]),
        (renews && rules.nodes > 2, &[ReAdded]),
        (rules.fenced, &[WrittenBack]),
        (rules.crashes > 0, &[GrantedAfterCrash, Healed, Lost]),
        (rules.adopts, &[Adopted, Lost]),
        (rules.awaits_release, &[Released]),
        (rules.breaks_by_force > 0, &[Broken]),
        (rules.again, &[ConfirmedAgain]),
    ];
    let due = due.into_iter().filter(|(is_due, _)| *is_due).flat_map(|(_, events)| events);
    let expected = Expected::Holds(due.copied().collect());
    Named { name, rules, before: Vec::new(), expected }
}

fn breaks(name: &'static str, fault: Fault, promise: &'static str, rules: Rules) -> Named {
    let rules = Rules { fault: Some(fault), ..rules };
    let expected = Expected::Breaks(promise);
    Named { name, rules, before: Vec::new(), expected }
}

fn outlives(name: &'static str, rules: Rules) -> Named {
    let expected = Expected::Breaks(OVER);
    Named { name, rules, before: Vec::new(), expected }
}

fn one_id(name: &'static str, rules: Rules) -> Named {
    breaks(name, Fault::OneIdForAllTries, EXCLUSION, rules)
}

impl Named {
    /// Starts later, to find deep states.
    fn after(self, before: Vec<Action>) -> Self {
        Self { before, ..self }
    }
}
