use std::sync::{Mutex, PoisonError};

use leasehold_core::tally::{Answer, Decision, lasting_failure, majority};
use leasehold_core::{Effect, Error, NodeOutcome, NodeReports, Result};

use crate::queues::Place;
use crate::round::{Reporter, Round, failure};

/// A node's answers so far, one for each lease of the request.
pub(crate) type Each<L> = Vec<Answer<L>>;

/// Reports to the round what a node answered to the parts of a request, as the answers come.
pub(crate) struct LeaseReporter<L> {
    reporter: Reporter<Each<L>>,
    answers: Mutex<Each<L>>,
}

impl<L: Clone> LeaseReporter<L> {
    pub(crate) fn new(reporter: Reporter<Each<L>>, leases: usize) -> Self {
        Self { reporter, answers: Mutex::new(vec![None; leases]) }
    }

    /// Reports the node's answer about the leases of these places.
    pub(crate) fn report(&self, asked: &[Place], answer: Result<Vec<Result<L>>>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcomes = match answer {
            Ok(outcomes) => outcomes.into_iter(),
            Err(error) if asked.len() == answers.len() => return self.reporter.report(Err(error)),
            Err(error) => vec![Err(error); asked.len()].into_iter(),
        };
        for place in asked {
            answers[place.lease()] =
                Some(outcomes.next().unwrap_or_else(|| {
                    Err(Error::unexpected("its answer lacks a requested lease"))
                }));
        }
        self.reporter.report(Ok(answers.clone()));
    }
}

impl<L: Clone> Round<Each<L>> {
    /// Decides each of `count` leases; ends when all are decided.
    ///
    /// # Cancel safety
    /// As [`decide`](Round::decide).
    pub(crate) async fn decide_each(
        &mut self,
        count: usize,
        decide: fn(&[Answer<L>]) -> Decision<L>,
    ) -> Vec<Decision<L>> {
        let all = |answers: &[Answer<Each<L>>]| -> Vec<Decision<L>> {
            (0..count).map(|lease| decide(&of_lease(answers, lease))).collect()
        };
        let is_open = |decision: &Decision<L>| matches!(decision, Decision::Open);
        let decided = |answers: &[_]| Some(all(answers)).filter(|each| !each.iter().any(is_open));
        match self.decide(decided).await {
            Some(decisions) => decisions,
            None => {
                self.fail_what_is_missing();
                all(&self.answers)
            }
        }
    }

    /// A lease without an answer fails like a node without one.
    fn fail_what_is_missing(&mut self) {
        let Some(missing) = &self.missing else { return };
        let answered = self.answers.iter_mut().flatten().flatten();
        for answer in answered.flatten().filter(|answer| answer.is_none()) {
            *answer = Some(Err(missing.clone()));
        }
    }

    /// The outcome of each lease and what each node reported. The request fails as a whole only if it reached no
    /// majority of nodes for any lease.
    pub(crate) fn conclude(
        &self,
        decisions: Vec<Decision<L>>,
        outcome: fn(&L) -> NodeOutcome,
        failed: fn(Error) -> L,
    ) -> Result<(Vec<L>, NodeReports)> {
        let nodes = self.reports(|leases| {
            let of_one = |lease: &Answer<L>| match lease {
                Some(Ok(lease)) => outcome(lease),
                Some(Err(error)) => NodeOutcome::Failed(error.clone()),
                None => NodeOutcome::Failed(no_answer()),
            };
            leases.iter().map(of_one).collect()
        });
        let is_made = |decision: &_| matches!(decision, Decision::Made(_));
        if self.answered() < majority(self.answers.len()) && !decisions.iter().any(is_made) {
            return Err(self.failure(Effect::Unknown, nodes));
        }
        let leases = decisions.into_iter().enumerate().map(|(lease, decision)| match decision {
            Decision::Made(made) => made,
            Decision::Open | Decision::Undecided => {
                let answers = of_lease(&self.answers, lease);
                let kind = lasting_failure(&answers);
                failed(failure(self.operation(), kind, effect(&answers), nodes.of_lease(lease)))
            }
        });
        Ok((leases.collect(), nodes))
    }
}

fn no_answer() -> Error {
    Error::unavailable(Effect::Unknown, "no answer yet")
}

/// What each node reported of one lease.
fn of_lease<L: Clone>(answers: &[Answer<Each<L>>], lease: usize) -> Vec<Answer<L>> {
    let of_node = |answer: &Answer<Each<L>>| match answer.as_ref()? {
        Ok(leases) => leases[lease].clone(),
        Err(error) => Some(Err(error.clone())),
    };
    answers.iter().map(of_node).collect()
}

/// Not applied only if no node applied it.
fn effect<L>(answers: &[Answer<L>]) -> Effect {
    let is_none = |answer: &Answer<L>| match answer {
        Some(Err(error)) => error.effect() == Effect::NotApplied,
        _ => false,
    };
    if answers.iter().all(is_none) { Effect::NotApplied } else { Effect::Unknown }
}
