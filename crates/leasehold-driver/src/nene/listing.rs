//! Lists rows, and removes them by force.

use leasehold_core::{
    Cursor, Effect, Error, ErrorKind, EvictReply, EvictTarget, Expired, Filter, ListReply,
    ListRequest, Result, Unreadable,
};

use super::rows::{Found, NeneRow, NeneRows, Seen};
use super::rules::until;
use super::table::{Inner, TRIES, id};
use crate::Deadline;

/// How many rows a page of a listing or a purge reads.
const LOOK_AT: usize = 1_000;

impl<R: NeneRows> Inner<R> {
    pub(super) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let filter = request.filter();
        let mut reply = ListReply::new(Vec::new(), None);
        let (found, more) = self.found(self.deadline(), filter, request.cursor()).await?;
        let count = found.len();
        for (nth, (now, row)) in found.into_iter().enumerate() {
            let cursor = cursor_after(resource(&row));
            match row.map(|row| (self.record(&row, now), row)) {
                Ok((Ok(record), _)) if filter.matches(&record) => reply.records.push(record),
                Ok((Ok(_), _)) => {}
                Ok((Err(error), row)) => {
                    reply.unreadable.extend(unreadable(filter, &row, now, error));
                }
                Err(damaged) => reply.unreadable.extend(of_filter(filter, damaged)),
            }
            let is_full = reply.records.len() == request.limit();
            if is_full || nth + 1 == count {
                reply.next = (more || nth + 1 < count).then_some(cursor);
                break;
            }
        }
        Ok(reply)
    }

    /// The rows of the keys that a filter names, or some rows after a position and whether there may be more; each with the
    /// server's clock.
    async fn found(
        &self,
        until: Deadline,
        filter: &Filter,
        after: Option<&Cursor>,
    ) -> Result<(Vec<(i64, Found)>, bool)> {
        let after = after.map(position).transpose()?;
        let Some(keys) = filter.keys() else {
            let page = self.rows.page(until, after.unwrap_or_default(), LOOK_AT).await?;
            let more = page.rows.len() == LOOK_AT;
            return Ok((page.rows.into_iter().map(|row| (page.now, row)).collect(), more));
        };
        let mut found = Vec::new();
        for key in keys {
            match self.rows.look(until, key.as_str()).await {
                Ok(Seen { now, row }) => found.extend(row.map(|row| (now, Ok(row)))),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    found.push((0, Err(Unreadable::new(key.as_str(), error))));
                }
                Err(error) => return Err(error),
            }
        }
        found.sort_by(|(_, a), (_, b)| resource(a).cmp(resource(b)));
        found.dedup_by(|(_, a), (_, b)| resource(a) == resource(b));
        found.retain(|(_, row)| after.is_none_or(|after| resource(row) > after));
        Ok((found, false))
    }

    pub(super) async fn evict(&self, targets: &[EvictTarget], limit: usize) -> Result<EvictReply> {
        let (until, most) = (self.deadline(), limit.min(targets.len()));
        let (mut removed, mut tried) = (Vec::new(), 0);
        for target in &targets[..most] {
            if tried > 0 && until.left().is_zero() {
                break;
            }
            if self.remove(until, target).await.map_err(|e| acted(e, &removed))? {
                removed.push(target.clone());
            }
            tried += 1;
        }
        Ok(EvictReply::new(removed, 0, tried < targets.len()))
    }

    async fn remove(&self, until: Deadline, target: &EvictTarget) -> Result<bool> {
        for _ in 0..TRIES {
            let Seen { row, .. } = self.rows.look(until, target.key.as_str()).await?;
            let Some(row) = row.filter(|row| id(row) == target.id) else { return Ok(false) };
            if self.rows.delete(until, &row).await? {
                return Ok(true);
            }
        }
        Err(self.busy())
    }

    /// Removes rows that anybody may take over. When its time is over it returns what it has done.
    pub(super) async fn purge(&self, filter: &Filter, limit: usize) -> Result<EvictReply> {
        let wanted = filter.clone().with_expired(Expired::Only);
        let mut reply = EvictReply::new(Vec::new(), 0, false);
        let (until, mut after) = (self.deadline(), None);
        while !until.left().is_zero() {
            let found = self.found(until, filter, after.as_ref()).await;
            let (found, more) = found.map_err(|e| acted(e, &reply.removed))?;
            after = found.last().map(|(_, row)| cursor_after(resource(row)));
            for (now, row) in found {
                let row = match row {
                    Ok(row) => row,
                    Err(damaged) => {
                        reply.unreadable.extend(of_filter(filter, damaged));
                        continue;
                    }
                };
                if !self.margin.until_free(&row, now).is_zero() {
                    continue;
                }
                let record = match self.record(&row, now) {
                    Ok(record) if wanted.matches(&record) => record,
                    Ok(_) => continue,
                    Err(error) => {
                        reply.unreadable.extend(unreadable(&wanted, &row, now, error));
                        continue;
                    }
                };
                if reply.removed.len() == limit || until.left().is_zero() {
                    reply.more = true;
                    return Ok(reply);
                }
                if self.rows.delete(until, &row).await.map_err(|e| acted(e, &reply.removed))? {
                    reply.removed.push(EvictTarget::of(&record));
                }
            }
            if !more {
                return Ok(reply);
            }
        }
        reply.more = true;
        Ok(reply)
    }
}

/// A row of a name that is no key, if the filter may mean it.
fn unreadable(filter: &Filter, row: &NeneRow, now: i64, why: Error) -> Option<Unreadable> {
    let is_live = !until(row.expires_at, now).is_zero();
    let is_meant = match filter.expired() {
        Expired::Out => is_live,
        Expired::In => true,
        Expired::Only => !is_live,
    };
    let may_match = is_meant && filter.matches_name(&row.resource);
    may_match.then(|| Unreadable::new(&row.resource, why))
}

fn resource(row: &Found) -> &str {
    row.as_ref().map_or_else(|damaged| &*damaged.name, |row| &*row.resource)
}

fn of_filter(filter: &Filter, damaged: Unreadable) -> Option<Unreadable> {
    filter.matches_name(&damaged.name).then_some(damaged)
}

fn cursor_after(resource: &str) -> Cursor {
    Cursor::new(format!("{resource}\0").into_bytes())
}

/// The resource of a cursor.
fn position(cursor: &Cursor) -> Result<&str> {
    let text = std::str::from_utf8(cursor.as_bytes()).ok();
    let resource = text.and_then(|text| text.strip_suffix('\0'));
    resource.ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
}

/// The error of an operation that has removed something already.
fn acted(error: Error, removed: &[EvictTarget]) -> Error {
    if removed.is_empty() { error } else { error.with_effect(Effect::Unknown) }
}
