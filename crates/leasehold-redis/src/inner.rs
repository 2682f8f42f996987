//! What all operations share.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::term::micros_up;
use leasehold_core::{Error, Key, Result, each_or_worst};
use redis::Value;

use crate::argument::Argument;
use crate::connection::exchange::Request;
use crate::durability::Statement;
use crate::error;
use crate::names::{Name, Names};
use crate::page::Position;
use crate::replies::Reader;
use crate::scripts::Script;
use crate::servers::Servers;

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "redis";

/// The most keys of a lease: one run of a script takes them, and blocks the server meanwhile.
pub(crate) const MAX_CLAIMS: usize = 100;

/// The most keys of several leases in one run of a script. The runs of one operation are sent together.
const CHUNK: usize = 16;

/// The most shared holders of a key: a script reads them all.
pub(crate) const MAX_HOLDERS: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

pub(crate) struct Inner {
    pub(crate) servers: Servers,
    pub(crate) names: Names,
    /// The most shared holders of a key.
    pub(crate) max_holders: NonZeroU32,
    /// For how many milliseconds after its start a server grants nothing, or `durable`; empty for neither.
    quarantine: String,
    /// Where the next purge continues, so that a small one need not begin at the start.
    pub(crate) purged_to: Mutex<Position>,
}

/// Entries of a request for one run of a script.
#[derive(Default)]
struct Chunk {
    /// How many keys they name.
    keys: usize,
    entries: Vec<usize>,
}

impl Inner {
    pub(crate) fn new(servers: Servers, names: Names, max_holders: NonZeroU32) -> Self {
        let quarantine = match servers.statement() {
            Statement { durable: true, .. } => "durable".to_owned(),
            Statement { quarantine: Duration::ZERO, .. } => String::new(),
            Statement { quarantine, .. } => milliseconds(quarantine),
        };
        let purged_to = Mutex::default();
        Self { servers, names, max_holders, quarantine, purged_to }
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader(self.servers.name())
    }

    pub(crate) async fn run(
        &self,
        script: &Script,
        names: &[Name],
        arguments: &[Argument<'_>],
        request: &Request,
    ) -> Result<Value> {
        self.servers.run(script, names, arguments, request).await
    }

    pub(crate) fn names<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Result<Vec<Name>> {
        keys.into_iter().map(|key| self.names.of(key)).collect()
    }

    /// Whether it need not look first what a server may have forgotten.
    pub(crate) fn grants_at_once(&self) -> bool {
        self.quarantine.is_empty()
    }

    pub(crate) fn quarantine(&self) -> Argument<'_> {
        self.quarantine.as_str().into()
    }

    /// Where Sentinel or a Cluster promotes replicas, a promoted one is what was asked for.
    pub(crate) fn refuses_promoted(&self) -> Argument<'_> {
        u64::from(self.servers.is_alone()).into()
    }

    /// Calls `act` at once on chunks that one script may have together; fails as a whole only if every entry
    /// fails.
    pub(crate) async fn chunks<'a, I, O, F: Future<Output = Result<Vec<O>>>>(
        &self,
        entries: &'a [I],
        names: impl Fn(&'a I) -> Result<Vec<Name>>,
        act: impl Fn(Vec<&'a I>) -> F,
        failed: impl Fn(Error) -> O,
    ) -> Result<Vec<O>> {
        if let [entry] = entries {
            return act(vec![entry]).await;
        }
        // Boxed, to keep the future of the usual request small.
        Box::pin(async move {
            let (mut together, mut apart) = (BTreeMap::<_, Vec<Chunk>>::new(), Vec::new());
            for (at, entry) in entries.iter().enumerate() {
                match names(entry).and_then(|names| Ok((self.servers.slot(&names)?, names.len()))) {
                    Ok((slot, keys)) => {
                        let chunks = together.entry(slot).or_default();
                        if chunks.last().is_none_or(|last| last.keys + keys > CHUNK) {
                            chunks.push(Chunk::default());
                        }
                        if let Some(last) = chunks.last_mut() {
                            last.keys += keys;
                            last.entries.push(at);
                        }
                    }
                    Err(error) => apart.push((at, Err(error))),
                }
            }
            let chunks: Vec<_> = together.into_values().flatten().map(|one| one.entries).collect();
            let outcomes = join_all(
                chunks
                    .iter()
                    .map(|chunk| act(chunk.iter().filter_map(|at| entries.get(*at)).collect())),
            );
            let mut all: Vec<(usize, Result<O>)> = apart;
            for (chunk, outcome) in chunks.iter().zip(outcomes.await) {
                match outcome {
                    Ok(outcome) if outcome.len() == chunk.len() => {
                        all.extend(chunk.iter().copied().zip(outcome.into_iter().map(Ok)));
                    }
                    Ok(_) => {
                        return Err(error::unexpected(
                            self.servers.name(),
                            "the number of outcomes",
                        ));
                    }
                    Err(error) => all.extend(chunk.iter().map(|at| (*at, Err(error.clone())))),
                }
            }
            all.sort_by_key(|(at, _)| *at);
            each_or_worst(all.into_iter().map(|(_, outcome)| outcome), failed)
        })
        .await
    }
}

/// Rounded up.
fn milliseconds(duration: Duration) -> String {
    micros_up(duration).div_ceil(1_000).to_string()
}
