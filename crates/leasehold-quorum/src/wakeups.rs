use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use leasehold_core::tally::majority;
use leasehold_core::{Effect, Key, Result, Store, Wakeups};

use crate::inner::Inner;

type Hints = Pin<Box<dyn Stream<Item = (usize, Key)> + Send>>;

impl Inner {
    /// Hints from all nodes; a waiter is woken when a majority may be free.
    ///
    /// One node's hint is not enough: a waiter that a free minority grants and the rest refuse rolls back, which
    /// is a hint to every waiter, itself included, and they would try for ever.
    pub(crate) async fn subscribe(self: &Arc<Self>, keys: &[Key]) -> Result<Wakeups> {
        if !self.can.notifications {
            return Ok(Wakeups::none());
        }
        let keys: Arc<[Key]> = keys.into();
        let round = self
            .ask_all("subscribe", |node| {
                let keys = Arc::clone(&keys);
                async move { node.store.subscribe(&keys).await }
            })
            .await;
        if round.answered() == 0 {
            return Err(round.failure(Effect::NotApplied, round.reports(|_| Vec::new())));
        }
        // A node that sends no wake-ups counts as free.
        let needed = majority(self.nodes.len()).saturating_sub(self.nodes.len() - round.answered());
        let open = round.answers.into_iter().enumerate().filter_map(|(node, answer)| {
            let wakeups = answer?.ok()?;
            Some(Box::pin(stream::unfold(wakeups, move |mut wakeups| async move {
                Some(((node, wakeups.next().await), wakeups))
            })) as Hints)
        });
        let hints: SelectAll<Hints> = open.collect();
        let woken: HashMap<Key, HashSet<usize>> = HashMap::new();
        Ok(Wakeups::new(stream::unfold((hints, woken), move |(mut hints, mut woken)| async move {
            loop {
                let (node, key) = hints.next().await?;
                let nodes = woken.entry(key.clone()).or_default();
                nodes.insert(node);
                if nodes.len() >= needed {
                    nodes.clear();
                    return Some((key, (hints, woken)));
                }
            }
        })))
    }
}
