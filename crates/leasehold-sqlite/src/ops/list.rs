use std::collections::BTreeSet;
use std::convert::identity;

use leasehold_core::{
    Cursor, ErrorKind, Filter, Key, ListReply, ListRequest, Page, Result, Table, Unreadable,
};
use rusqlite::params;

use crate::inner::Inner;
use crate::rows::{Next, Rows};

/// How many records one page reads, at most. A page may then hold less than requested, and the next one continues:
/// a filter that matches little does not block the thread for other operations.
const LOOK_AT: usize = 10_000;

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let request = request.clone();
        self.run(move |database, limit| {
            database.read(limit, |rows| match request.filter().keys() {
                Some(keys) => named(rows, keys, &request),
                None => page(rows, &request),
            })
        })
        .await
    }
}

/// The records of these keys; a damaged one hides no other.
fn named(rows: &Rows<'_>, keys: &[Key], request: &ListRequest) -> Result<ListReply> {
    let (mut table, mut unreadable) = (Table::default(), Vec::new());
    for key in keys.iter().collect::<BTreeSet<_>>() {
        match rows.holders(key) {
            Ok(holders) => table.insert(key.clone(), holders),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                unreadable.push(Unreadable::new(key.as_str(), error));
            }
            Err(error) => return Err(error),
        }
    }
    let mut page = table.list(request, rows.now)?;
    if request.cursor().is_none() {
        page.unreadable = unreadable;
    }
    Ok(page)
}

/// As [`Table::list`](leasehold_core::Table::list), over rows that are read one by one.
fn page(rows: &Rows<'_>, request: &ListRequest) -> Result<ListReply> {
    let filter = request.filter();
    let (key, id) = start(filter, request.cursor())?;
    let mut page = Page::new(request, None);
    let (mut looked_at, mut is_last) = (0, true);
    rows.each_record(&rows.sql.page, params![key, id], |stored| {
        let stored = match stored {
            Ok(stored) => stored,
            Err(damaged) => {
                page.add_unreadable(None, damaged);
                return Ok(Next::More);
            }
        };
        // In key order, all keys with the prefix are adjacent.
        if !stored.key.as_str().starts_with(filter.key_prefix()) {
            return Ok(Next::Enough);
        }
        let position = Cursor::after_lease(&stored.key, Some(&stored.id));
        let record = stored.holder.record(&stored.key, rows.now);
        if looked_at == LOOK_AT || page.add(position, record).is_break() {
            is_last = false;
            return Ok(Next::Enough);
        }
        looked_at += 1;
        Ok(Next::More)
    })?;
    Ok(if is_last { page.last() } else { page.followed(identity) })
}

/// The key and id after which a page begins.
fn start(filter: &Filter, cursor: Option<&Cursor>) -> Result<(String, Vec<u8>)> {
    // No id is empty, so this comes before every record with the prefix.
    let first = (filter.key_prefix().to_owned(), Vec::new());
    let after = cursor.map(Cursor::position).transpose()?;
    let after = after.map(|(key, id)| (key.as_str().to_owned(), id));
    Ok(after.map_or(first.clone(), |after| after.max(first)))
}
