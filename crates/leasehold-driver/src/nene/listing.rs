//! Lists rows, and removes them by force.

use leasehold_core::{
    Cursor, Effect, Error, ErrorKind, EvictReply, EvictTarget, Expired, Filter, ListReply,
    ListRequest, Page, Record, Result, Unreadable,
};

use super::rows::{Found, NeneRow, NeneRows};
use super::rules::until;
use super::table::{Inner, id};
use crate::Deadline;

/// How many rows a page of a listing or a purge reads.
const LOOK_AT: usize = 1_000;

impl<R: NeneRows> Inner<R> {
    pub(super) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let filter = request.filter();
        let (found, more) = self.found(self.deadline(), filter, request.cursor()).await?;
        let mut page = Page::new(request, None);
        let cursor = |(_, resource): (usize, String)| cursor_after(&resource);
        // Positions begin with a number, for the order of resources is that of the table's collation.
        for (nth, (now, row)) in found.into_iter().enumerate() {
            let position = (nth, resource(&row).to_owned());
            let record = match self.read(filter, row, now) {
                Ok((_, record)) => Some(record),
                Err(Some(unreadable)) => {
                    page.add_unreadable(None, unreadable);
                    None
                }
                Err(None) => None,
            };
            // The resource of a damaged row may be unknown.
            if !position.1.is_empty() && page.add(position, record).is_break() {
                return Ok(page.followed(cursor));
            }
        }
        Ok(if more { page.followed(cursor) } else { page.last() })
    }

    /// The record of a row; or why there is none, if the filter may mean the row.
    fn read(
        &self,
        filter: &Filter,
        row: Found,
        now: i64,
    ) -> Result<(NeneRow, Record), Option<Unreadable>> {
        let may_match = |name: &str| filter.matches_name(name);
        let row = row.map_err(|damaged| may_match(&damaged.name).then_some(damaged))?;
        let is_live = !until(row.expires_at, now).is_zero();
        match (self.record(&row, now), filter.expired(), is_live) {
            (Ok(record), ..) => Ok((row, record)),
            (Err(_), Expired::Out, false) | (Err(_), Expired::Only, true) => Err(None),
            (Err(why), ..) => {
                Err(may_match(&row.resource).then(|| Unreadable::new(&row.resource, why)))
            }
        }
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
            let page = self.page(until, after.unwrap_or_default(), LOOK_AT).await?;
            let more = page.rows.len() == LOOK_AT;
            return Ok((page.rows.into_iter().map(|row| (page.now, row)).collect(), more));
        };
        let mut found = Vec::new();
        for key in keys {
            match self.look(until, key.as_str()).await {
                Ok((now, row)) => found.extend(row.map(|row| (now, Ok(row)))),
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
            let gone = self.remove(until, target.key.as_str(), |row| id(row) == target.id).await;
            if gone.map_err(|e| acted(e, &removed))?.is_some() {
                removed.push(target.clone());
            }
            tried += 1;
        }
        Ok(EvictReply::new(removed, 0, tried < targets.len()))
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
                let may_go = |row: &NeneRow| self.margin.until_free(row, now).is_zero();
                if !row.as_ref().map_or(true, may_go) {
                    continue;
                }
                let (row, record) = match self.read(&wanted, row, now) {
                    Ok((row, record)) if wanted.matches(&record) => (row, record),
                    Ok(_) => continue,
                    Err(unreadable) => {
                        reply.unreadable.extend(unreadable);
                        continue;
                    }
                };
                if reply.removed.len() == limit || until.left().is_zero() {
                    reply.more = true;
                    return Ok(reply);
                }
                if self.delete(until, &row).await.map_err(|e| acted(e, &reply.removed))? {
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

fn resource(row: &Found) -> &str {
    row.as_ref().map_or_else(|damaged| &*damaged.name, |row| &*row.resource)
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
