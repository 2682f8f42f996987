//! One search of one model, and its result.

use std::time::Duration;

use leasehold_core::Clock;
use leasehold_driver::SystemClock;
use stateright::{Checker, HasDiscoveries, Model};

use crate::leasing::Leasing;
use crate::models::{Expected, Named};
use crate::promises::Event;

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) complete: bool,
    pub(crate) took: Duration,
    /// The broken promise and the steps that break it.
    pub(crate) broken: Option<(&'static str, Vec<String>)>,
    pub(crate) seen: Vec<Event>,
}

/// Searches until every state is visited, a promise is broken, or `limit` passes.
pub(crate) fn search(named: &Named, limit: Duration) -> Found {
    let clock = SystemClock::new();
    let started = clock.now();
    let only = match named.expected {
        Expected::Holds(_) => None,
        Expected::Breaks(promise) => Some(promise),
    };
    let model = Leasing::new(named.rules.clone(), named.before.clone(), only);
    // With one thread the counter-example is a shortest one, and the depth always the same.
    let checker = model.clone().checker().threads(1).timeout(limit);
    let done = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let took = clock.now() - started;
    let broken = done.discoveries().into_iter().next().map(|(promise, path)| {
        let steps = named.before.iter().cloned().chain(path.into_actions());
        (promise, steps.map(|action| format!("{action:?}")).collect())
    });
    Found {
        states: done.unique_state_count(),
        depth: done.max_depth(),
        // A search that ran out of time reports that it is done, too.
        complete: broken.is_none() && took < limit,
        took,
        broken,
        seen: Event::ALL.into_iter().filter(|event| model.has_seen(*event)).collect(),
    }
}
