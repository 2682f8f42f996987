//! The nodes' answers, in the terms of the code's own `tally`.

use std::time::Duration;

use leasehold_core::tally::{Answer as NodeAnswer, Decision};
use leasehold_core::{
    AcquireReply, Effect, Error, FencingToken, Granted, Key, RefusalReason, Refused,
    ReleaseOutcome, Remaining, RenewOutcome, Result,
};

use crate::acts::Verdict;
use crate::node::{Answer, Asked, Ended, Node};
use crate::rules::{ticks, whole_ticks};
use crate::world::{Nodes, World};

impl World {
    pub(crate) fn acquired(
        &self,
        client: usize,
        read: Nodes,
        last: bool,
    ) -> Vec<NodeAnswer<AcquireReply>> {
        self.answers(client, read, last, Asked::acquired)
    }

    pub(crate) fn renewed(
        &self,
        client: usize,
        read: Nodes,
        last: bool,
    ) -> Vec<NodeAnswer<RenewOutcome>> {
        self.answers(client, read, last, Asked::renewed)
    }

    pub(crate) fn released(
        &self,
        client: usize,
        read: Nodes,
        last: bool,
    ) -> Vec<NodeAnswer<ReleaseOutcome>> {
        self.answers(client, read, last, Asked::released)
    }

    /// Whether enough nodes reported so, counted without the code's arithmetic.
    pub(crate) fn backs(&self, verdict: &Verdict, client: usize, read: Nodes) -> bool {
        let count = |is_so: &dyn Fn(Answer) -> bool| {
            let answers = self.nodes.iter().enumerate().filter_map(|(at, node)| {
                let Asked::Answered(answer) = node.asked[client] else { return None };
                (read & (1 << at) != 0).then_some(answer)
            });
            answers.filter(|answer| is_so(*answer)).count()
        };
        let most = |is_so: &dyn Fn(Answer) -> bool| 2 * count(is_so) > self.nodes.len();
        // So many decline that the others are not a majority.
        let blocks = |is_no: &dyn Fn(Answer) -> bool| {
            2 * (self.nodes.len() - count(is_no)) <= self.nodes.len()
        };
        let released = |as_told: Ended| {
            most(&|answer| matches!(answer, Answer::Released(ended) if ended == as_told))
        };
        match verdict {
            Verdict::Acquired(_, AcquireReply::Granted(granted)) => most(&|answer| match answer {
                Answer::Granted { fresh, .. } => granted.fresh || !fresh,
                _ => false,
            }),
            Verdict::Acquired(_, AcquireReply::Refused(_)) => {
                blocks(&|answer| answer == Answer::Refused)
            }
            Verdict::Renewed(RenewOutcome::Held(_)) => {
                most(&|answer| matches!(answer, Answer::Held { .. }))
            }
            Verdict::Renewed(_) => blocks(&|answer| answer == Answer::Lost),
            Verdict::Released(ReleaseOutcome::Released) => released(Ended::Released),
            Verdict::Released(ReleaseOutcome::Expired) => released(Ended::Expired),
            Verdict::Released(_) => blocks(&|answer| answer == Answer::Released(Ended::NotHeld)),
        }
    }

    fn answers<T>(
        &self,
        client: usize,
        read: Nodes,
        last: bool,
        of: impl Fn(&Asked) -> NodeAnswer<T>,
    ) -> Vec<NodeAnswer<T>> {
        let late = || Err(Error::unavailable(Effect::Unknown, "no answer in time"));
        let answer = |(at, node): (usize, &Node)| {
            let answer = of(&node.asked[client]).filter(|_| read & (1 << at) != 0);
            answer.or_else(|| last.then(late))
        };
        self.nodes.iter().enumerate().map(answer).collect()
    }
}

impl Asked {
    pub(crate) fn acquired(&self) -> NodeAnswer<AcquireReply> {
        let Self::Answered(answer) = self else { return None };
        Some(match *answer {
            Answer::Granted { rest, fresh, token } => {
                let token = FencingToken::new(u64::from(token)).ok();
                let rest = Remaining::For(ticks(rest));
                Ok(AcquireReply::Granted(Granted::new(token, rest, fresh)))
            }
            Answer::Quarantined => Err(Error::unavailable(Effect::NotApplied, "in quarantine")),
            Answer::Refused => refusal(),
            Answer::Held { .. } | Answer::Lost | Answer::Released(_) | Answer::Evicted { .. } => {
                return None;
            }
        })
    }

    pub(crate) fn renewed(&self) -> NodeAnswer<RenewOutcome> {
        let Self::Answered(answer) = self else { return None };
        match *answer {
            Answer::Held { rest } => Some(Ok(RenewOutcome::Held(Remaining::For(ticks(rest))))),
            Answer::Lost => Some(Ok(RenewOutcome::Lost(None))),
            _ => None,
        }
    }

    fn released(&self) -> NodeAnswer<ReleaseOutcome> {
        let Self::Answered(Answer::Released(ended)) = self else { return None };
        Some(Ok(match ended {
            Ended::Released => ReleaseOutcome::Released,
            Ended::Expired => ReleaseOutcome::Expired,
            Ended::NotHeld => ReleaseOutcome::NotHeld,
        }))
    }
}

pub(crate) fn made<T>(decision: Decision<T>) -> Option<T> {
    match decision {
        Decision::Made(outcome) => Some(outcome),
        Decision::Open | Decision::Undecided => None,
    }
}

fn refusal() -> Result<AcquireReply> {
    let key = Key::new("key").expect("valid");
    Ok(AcquireReply::Refused(Refused::new(key, RefusalReason::Held(None), Some(Duration::ZERO))))
}

pub(crate) fn finite(rest: Remaining) -> u8 {
    whole_ticks(rest.duration().expect("every term is finite"))
}
