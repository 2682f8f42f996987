//! Takes a lock: with the claim row of its token, and beside no name that spindle confuses with its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use google_cloud_gax::error::rpc::Code;
use google_cloud_spanner::result::Row;
use leasehold_core::{
    AcquireReply, AcquireRequest, Clock as _, Effect, Error, FencingToken, Key, RefusalReason,
    Refused, Result, Table,
};
use leasehold_driver::Deadline;

use super::rules::{Decided, Lock, MARGIN};
use super::{Inner, lock, of_another_generation, row_of};
use crate::client::{Committed, Decision, Found, Times};
use crate::columns::{column, instant};
use crate::error;

/// How many names a process remembers to have looked around.
const SURVEYED: usize = 10_000;

/// What became of a request for a lock.
enum Tried {
    Decided(AcquireReply, bool),
    /// There is no row, and nobody has looked around it inside the transaction.
    New,
    /// Somebody else has this claim row.
    Claimed(String),
}

impl Inner {
    pub(super) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        times: Times,
    ) -> Result<AcquireReply> {
        let refusals = &self.client.refusals;
        let refused = match refusals.concern(request) {
            true => self.look(request, times.begin).await?,
            false => None,
        };
        let reply = match refused {
            Some(refused) => refused,
            None => self.try_to_take(request, times).await?,
        };
        refusals.note(request, &reply);
        Ok(reply)
    }

    /// The refusal, if the lock is held.
    async fn look(
        &self,
        request: &AcquireRequest,
        until: Deadline,
    ) -> Result<Option<AcquireReply>> {
        let key = &request.claims().first().key;
        let statement = self.statements.look_up(vec![key.as_str().to_owned()]);
        let found = self.client.look(statement, until).await?;
        let lock = Lock::new(key.clone(), row_of(&found.rows)?, self.config.duration);
        let acquire = |rules: &mut Table| rules.acquire(request, instant(found.now));
        let decided = lock.decide(&self.statements.table, instant(found.now), None, acquire)?;
        Ok(match decided.reply {
            refused @ AcquireReply::Refused(_) if decided.changes.is_empty() => Some(refused),
            _ => None,
        })
    }

    async fn try_to_take(
        self: &Arc<Self>,
        request: &AcquireRequest,
        times: Times,
    ) -> Result<AcquireReply> {
        let key = &request.claims().first().key;
        let mut is_new = self.survey(key, times.begin).await?;
        loop {
            let claimed = Arc::new(Mutex::default());
            let claim = match self.try_once(request, times, is_new, &claimed).await {
                Ok(Tried::Decided(reply, is_granted)) => {
                    lock(&self.met).forget(key);
                    if is_new {
                        self.note_surveyed(key);
                    }
                    if is_granted {
                        self.purge_sometimes(key);
                    }
                    return Ok(reply);
                }
                Ok(Tried::New) => {
                    is_new = true;
                    continue;
                }
                Ok(Tried::Claimed(claim)) => claim,
                Err(error) if error::has_code(&error, Code::AlreadyExists) => {
                    let Some(claim) = lock(&claimed).take() else {
                        // Somebody else added the lock.
                        is_new = false;
                        continue;
                    };
                    claim
                }
                Err(error) => return Err(error),
            };
            let left = self.respect(key, &claim);
            if !left.is_zero() {
                let refused = Refused::new(key.clone(), RefusalReason::Held(None), Some(left));
                return Ok(AcquireReply::Refused(refused));
            }
        }
    }

    /// How long a claim of another client is respected.
    pub(super) fn patience(&self) -> Duration {
        self.config.duration + MARGIN
    }

    /// How long this one still is.
    pub(super) fn respect(&self, key: &Key, claim: &str) -> Duration {
        lock(&self.met).respect(key, claim, self.patience(), self.clock.now())
    }

    /// Tries to take a lock. `claimed` becomes the claim row that it needs.
    async fn try_once(
        &self,
        request: &AcquireRequest,
        times: Times,
        is_new: bool,
        claimed: &Arc<Mutex<Option<String>>>,
    ) -> Result<Tried> {
        let key = request.claims().first().key.clone();
        let statement = match is_new {
            true => self.statements.add(key.as_str()),
            false => self.statements.look(vec![key.as_str().to_owned()]),
        };
        let passed = lock(&self.met).passed(&key, self.patience(), self.clock.now());
        let (request, claimed) = (request.clone(), Arc::clone(claimed));
        let (statements, duration) = (Arc::clone(&self.statements), self.config.duration);
        let decide = move |found: &Found| {
            let row = row_of(&found.rows)?;
            if row.is_none() && !is_new {
                return Ok(Decision { reply: Tried::New, changes: Vec::new() });
            }
            if is_new {
                refuse_neighbour(&key, &found.rows)?;
            }
            let is_added = row.is_none();
            let now = instant(found.now);
            let of_key = Lock::new(key.clone(), row, duration);
            let claim = of_key.claim();
            let mut passed = passed.as_deref();
            if is_added {
                match claim_is_ours(&found.rows)? {
                    Some(true) => passed = Some(&claim),
                    Some(false) if passed != Some(&*claim) => {
                        let reply = Tried::Claimed(claim);
                        return Ok(Decision { reply, changes: Vec::new() });
                    }
                    _ => {}
                }
            }
            let acquire = |rules: &mut Table| rules.acquire(&request, now);
            let decided = of_key.decide(&statements.table, now, passed, acquire)?;
            *lock(&claimed) = (!is_added).then_some(claim);
            let Decided { reply, changes, is_granted } = decided;
            Ok(Decision { reply: Tried::Decided(reply, is_granted), changes })
        };
        let client = &self.client;
        let done = client.transact(&client.requests, times, statement, decide).await?;
        let Committed { mut reply, at } = done;
        if let Tried::Decided(AcquireReply::Granted(granted), true) = &mut reply {
            let at = at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| {
                Error::unexpected("Spanner did not say when it committed")
                    .with_effect(Effect::Unknown)
            })?;
            granted.token = Some(FencingToken::new(at)?);
        }
        Ok(reply)
    }

    /// Refuses a name that spindle's clients cannot use, or beside which another lock is; once for each name. Returns whether the
    /// lock has no row.
    async fn survey(&self, key: &Key, until: Deadline) -> Result<bool> {
        if lock(&self.surveyed).contains(key) {
            return Ok(false);
        }
        if key.as_str().contains(['\'', '\\']) {
            return Err(Error::unsupported(format!(
                "the key is {:?}; spindle puts names into its SQL as they are, so one in its table has no ' and no \\",
                key.as_str()
            )));
        }
        let statement = self.statements.survey(key.as_str());
        let rows = self.client.read(statement, until).await?;
        refuse_neighbour(key, &rows)?;
        let stranger = rows.first().map(|row| column::<Option<String>>(row, "stranger"));
        if let Some(stranger) = stranger.transpose()?.flatten() {
            return Err(of_another_generation(&stranger));
        }
        let is_new = row_of(&rows)?.is_none();
        if !is_new {
            self.note_surveyed(key);
        }
        Ok(is_new)
    }

    fn note_surveyed(&self, key: &Key) {
        let mut surveyed = lock(&self.surveyed);
        if surveyed.len() >= SURVEYED {
            surveyed.clear();
        }
        surveyed.insert(key.clone());
    }
}

/// Whether the claim row of a lock without a row is ours; `None` if there is none.
fn claim_is_ours(rows: &[Row]) -> Result<Option<bool>> {
    let is_ours = rows.first().map(|row| column::<Option<bool>>(row, "claim_is_ours"));
    Ok(is_ours.transpose()?.flatten())
}

fn refuse_neighbour(key: &Key, rows: &[Row]) -> Result<()> {
    let neighbour = rows.first().map(|row| column::<Option<String>>(row, "neighbour"));
    match neighbour.transpose()?.flatten() {
        None => Ok(()),
        Some(other) => Err(Error::unsupported(format!(
            "the table has the lock {other:?}, and the key is {:?}: one is the beginning of the other up to a _, and the leader of \
             the shorter one deletes the row of the longer; rename one of them",
            key.as_str()
        ))),
    }
}
