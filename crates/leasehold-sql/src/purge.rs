//! Purges: removal of what is over, step by step.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Effect, Error, EvictReply, EvictTarget, Expired, Filter, Result, Unreadable};

use leasehold_driver::{Deadline, outliving};

use crate::dialect::Dialect;
use crate::error::{unanswered, unexpected};
use crate::expired::{Purge, Scan, ScannedRow};
use crate::position::Position;
use crate::reply::Reply;
use crate::session::Source;

/// How many rows one step removes, which limits how long it locks them.
const STEP: usize = 100;

/// How many rows are read for a step: few where there is much to remove, and up to many where there is little.
const LOOK_AT: (usize, usize) = (200, 5_000);

/// Removes what is over from where the last purge ended. When its time is over it returns what it has done, and the next
/// purge continues there.
pub(crate) async fn purge<D: Dialect>(
    dialect: &Arc<D>,
    filter: &Filter,
    most: usize,
    purged_to: &Mutex<Position>,
) -> Result<EvictReply> {
    let wanted = filter.clone().with_expired(Expired::Only);
    let keys = filter
        .keys()
        .map(|keys| -> Vec<_> { keys.iter().map(|key| key.as_str().to_owned()).collect() });
    let start = match keys {
        Some(_) => Position::default(),
        None => purged_to.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    };
    let mut reply = EvictReply::new(Vec::new(), 0, true);
    let (mut at, mut wrapped) = (start.clone(), start == Position::default());
    let until = Deadline::after(dialect.pool().timeout());
    let mut look_at = LOOK_AT.0;
    while !until.left().is_zero() {
        let acted = !reply.removed.is_empty();
        let judged = |e: Error| if acted { e.with_effect(Effect::Unknown) } else { e };
        let scanned = until
            .bound(scan(&**dialect, Scan { keys: keys.as_deref(), after: &at, most: look_at }))
            .await;
        let scanned = scanned.unwrap_or_else(|| {
            Err(unanswered(dialect.pool().server(), until.limit(), Effect::NotApplied))
        });
        let mut page = scanned.map_err(judged)?;
        let next = page.iter().find(|row| row.is_last).map(|row| Position::of(&row.stored));
        page.retain(|row| row.is_over);
        let room = most - reply.removed.len();
        let (mut candidates, full_at) = Candidates::of(page, at.clone(), &wanted, room.min(STEP));
        // A row may be read twice.
        for one in candidates.unreadable.drain(..) {
            if reply.unreadable.iter().all(|known| known.name != one.name) {
                reply.unreadable.push(one);
            }
        }
        if !candidates.is_empty() {
            remove(dialect, candidates, until, &mut reply).await.map_err(judged)?;
        }
        look_at = if full_at.is_some() { LOOK_AT.0 } else { LOOK_AT.1.min(look_at * 5) };
        match full_at.or(next) {
            Some(position) => at = position,
            None if wrapped => {
                at = Position::default();
                reply.more = false;
                break;
            }
            // From the beginning, as far as it has started.
            None => (at, wrapped) = (Position::default(), true),
        }
        if reply.removed.len() >= most {
            break;
        }
    }
    if keys.is_none() {
        *purged_to.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
    Ok(reply)
}

async fn remove<D: Dialect>(
    dialect: &Arc<D>,
    candidates: Candidates,
    until: Deadline,
    reply: &mut EvictReply,
) -> Result<()> {
    let Candidates { targets, purge, .. } = candidates;
    let purging = Arc::clone(dialect);
    let purged = until.bound(outliving(async move { remove_all(&*purging, &purge).await })).await;
    let purged = purged.unwrap_or_else(|| {
        Err(unanswered(dialect.pool().server(), until.limit(), Effect::Unknown))
    })?;
    for nth in purged {
        let target = usize::try_from(nth - 1).ok().and_then(|nth| targets.get(nth));
        reply.removed.extend(target.cloned().flatten());
    }
    Ok(())
}

/// What may be purged, as [`Records::scan`] reads it.
async fn scan<D: Dialect>(dialect: &D, these: Scan<'_>) -> Result<Vec<ScannedRow>> {
    let pool = dialect.pool();
    let rows = pool.read(pool.deadline(), || dialect.scan(these)).await?;
    let scanned = |row| {
        let row = Reply::<<D::Source as Source>::Session>(pool.server(), row);
        let (now, stored) = row.stored()?;
        let (is_last, is_over) = (row.flag("o_more")?, row.flag("o_over")?);
        Ok(ScannedRow { now, stored, is_last, is_over })
    };
    rows.iter().map(scanned).collect()
}

/// The positions of what is gone.
async fn remove_all(dialect: &impl Dialect, purge: &Purge) -> Result<Vec<i64>> {
    let pool = dialect.pool();
    let rows = pool.read(pool.deadline(), || dialect.purge(purge)).await?;
    let gone = dialect.positions(&rows)?;
    gone.ok_or_else(|| unexpected(pool.server(), "a purge that waits"))
}

/// What one step is to remove.
#[derive(Default)]
struct Candidates {
    /// `None` for a mark that only informs a holder.
    targets: Vec<Option<EvictTarget>>,
    purge: Purge,
    /// What stays.
    unreadable: Vec<Unreadable>,
}

impl Candidates {
    fn len(&self) -> usize {
        self.targets.iter().flatten().count()
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// At most `most` of these rows, which come after `at`, and the position before the first one that is left.
    fn of(
        page: Vec<ScannedRow>,
        mut at: Position,
        wanted: &Filter,
        most: usize,
    ) -> (Self, Option<Position>) {
        let mut all = Self::default();
        for row in page {
            if all.len() == most {
                return (all, Some(at));
            }
            all.add(wanted, &row);
            at = Position::of(&row.stored);
        }
        (all, None)
    }

    fn add(&mut self, wanted: &Filter, row: &ScannedRow) {
        let ScannedRow { now, stored, is_over, .. } = row;
        let target = match stored.record(*now) {
            Ok(Some(record)) if wanted.matches(&record) => Some(EvictTarget::of(&record)),
            Ok(None) => None,
            Ok(Some(_)) => return,
            Err(error) => {
                if wanted.matches_name(&stored.key) {
                    self.unreadable.push(Unreadable::new(stored.key.clone(), error));
                }
                return;
            }
        };
        let (true, Ok(Some(id))) = (is_over, stored.id()) else { return };
        self.targets.push(target);
        let id = id.to_bytes().into_owned();
        self.purge.over.push((stored.key.clone(), id, stored.token));
    }
}
