//! Purges of a whole table.

use std::sync::{Mutex, PoisonError};

use leasehold_core::{Effect, EvictReply, Result, Unreadable};
use leasehold_driver::Deadline;

/// A purge that goes through a table step by step.
pub(crate) trait Sweep: Sync {
    type Position: Clone + Ord + Send;

    /// Removes what is over in some rows from a position on, and adds it to the reply. Returns the position behind them; `None` at
    /// the end of the table.
    fn step(
        &self,
        from: &Self::Position,
        reply: &mut EvictReply,
        until: Deadline,
    ) -> impl Future<Output = Result<Option<Self::Position>>> + Send;
}

/// Purges from where the last purge ended, so that a small one need not begin at the `first` row. When the time is over it returns
/// what it has done.
pub(crate) async fn sweep<S: Sweep>(
    table: &S,
    first: S::Position,
    purged_to: &Mutex<S::Position>,
    most: usize,
    until: Deadline,
) -> Result<EvictReply> {
    let begun = purged_to.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut at = begun.max(first.clone());
    let (mut is_wrapped, mut has_stepped) = (at == first, false);
    let mut reply = EvictReply::new(Vec::new(), 0, true);
    let mut swept = Ok(());
    while left(&reply, most) > 0 && !until.left().is_zero() {
        match table.step(&at, &mut reply, until).await {
            // What is left over is for the next purge.
            Ok(_) if left(&reply, most) == 0 => {}
            Ok(Some(next)) => at = next,
            Ok(None) if is_wrapped => {
                (at, reply.more) = (first, false);
                break;
            }
            Ok(None) => (at, is_wrapped) = (first.clone(), true),
            Err(error) => {
                swept = Err(error);
                break;
            }
        }
        has_stepped = true;
    }
    *purged_to.lock().unwrap_or_else(PoisonError::into_inner) = at;
    match swept {
        Err(error) if !has_stepped => Err(error),
        Err(error) if !until.left().is_zero() || error.effect() == Effect::Unknown => {
            Err(error.with_effect(Effect::Unknown))
        }
        _ => Ok(reply),
    }
}

/// How many may still be removed.
pub(crate) fn left(reply: &EvictReply, most: usize) -> usize {
    most.saturating_sub(reply.removed.len() + reply.counters_forgotten)
}

/// Adds what a step has done.
pub(crate) fn add(reply: &mut EvictReply, done: EvictReply) {
    reply.removed.extend(done.removed);
    reply.counters_forgotten += done.counters_forgotten;
    done.unreadable.into_iter().for_each(|one| add_unreadable(reply, one));
}

/// Adds what is not named yet: a row may be read twice.
pub(crate) fn add_unreadable(reply: &mut EvictReply, one: Unreadable) {
    if reply.unreadable.iter().all(|known| known.name != one.name) {
        reply.unreadable.push(one);
    }
}
