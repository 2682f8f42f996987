//! A client: its requests, and until when it believes that it holds the key.

use crate::rules::Rules;
use crate::world::{Nodes, Step, World};

/// One client with its try in progress. It may stop at any point, for as long as it likes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The number of its try, counted over all clients from 1; it names the lease. 0 for none.
    pub(crate) attempt: u8,
    /// The token of the lease; 0 if tokens do not matter.
    pub(crate) token: u8,
    /// Another lease was granted since this one.
    pub(crate) superseded: bool,
    /// An operator ends the lease by force: its holder may still believe in it, which breaks no promise.
    pub(crate) broken: bool,
}

/// Ages are ticks since the request was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring {
        age: u8,
    },
    /// A majority granted; the write-back of its token is in progress. `age` is that of the acquire.
    WritingBack {
        age: u8,
        rest: u8,
    },
    /// It believes that it holds the key for `left` ticks, at least one.
    Holding {
        left: u8,
        asking: Asking,
    },
    /// The term has ended by its own clock.
    Lost,
    /// Another process has found the lease and renews it.
    Adopting {
        age: u8,
    },
    /// It waits for the quorum's answer to its release.
    Releasing,
}

/// The open request of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Asking {
    Nothing,
    Renewal { age: u8 },
    Again { age: u8 },
}

impl Client {
    pub(crate) fn believes(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    /// Whether the attempt may still be, or become, a lease of this client.
    pub(crate) fn names(&self, attempt: u8) -> bool {
        self.phase != Phase::Idle && self.attempt == attempt
    }

    /// A tick passes; true if that ends the belief.
    pub(crate) fn tick(&mut self, rules: &Rules) -> bool {
        match &mut self.phase {
            Phase::Idle | Phase::Lost | Phase::Releasing => false,
            Phase::Acquiring { age } | Phase::WritingBack { age, .. } | Phase::Adopting { age } => {
                // After a term, no answer can matter.
                *age = rules.term.min(*age + 1);
                false
            }
            Phase::Holding { left, asking } => {
                if let Asking::Renewal { age } | Asking::Again { age } = asking {
                    *age = rules.term.min(*age + 1);
                }
                *left -= 1;
                let over = *left == 0;
                if over {
                    self.phase = Phase::Lost;
                }
                over
            }
        }
    }
}

impl Client {
    /// What the client may do, given which nodes have answered it.
    pub(crate) fn steps(
        &self,
        world: &World,
        rules: &Rules,
        answered: Nodes,
        mut may: impl FnMut(Step),
    ) {
        let waits = match self.phase {
            Phase::Idle => {
                if world.tries > 0 {
                    may(Step::Try);
                }
                false
            }
            Phase::Acquiring { .. }
            | Phase::WritingBack { .. }
            | Phase::Adopting { .. }
            | Phase::Releasing => true,
            Phase::Holding { asking, .. } => {
                may(Step::Release);
                if asking == Asking::Nothing && world.renewals > 0 {
                    may(Step::Renew { term: rules.term });
                    if rules.short_renewals {
                        may(Step::Renew { term: 1 });
                    }
                    if rules.again {
                        may(Step::AcquireAgain);
                    }
                }
                asking != Asking::Nothing
            }
            Phase::Lost => {
                may(Step::Release);
                if rules.adopts && world.renewals > 0 {
                    may(Step::Adopt);
                }
                false
            }
        };
        if waits {
            may(Step::GiveUp);
            for read in (1..=answered).filter(|read| read & !answered == 0) {
                may(Step::Decide { read, last: false });
                if rules.again {
                    may(Step::Decide { read, last: true });
                }
            }
        }
    }
}

impl Client {
    pub(crate) fn ask(&mut self, what: Asking) {
        if let Phase::Holding { asking, .. } = &mut self.phase {
            *asking = what;
        }
    }
}
