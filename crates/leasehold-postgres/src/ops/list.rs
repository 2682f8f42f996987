use std::sync::Arc;

use leasehold_core::{Filter, ListReply, ListRequest, Result};
use leasehold_driver::Stored;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Statement, names};
use crate::inner::Inner;
use crate::position::{Position, position};
use crate::sql::Sql;
use crate::trace;

/// How many rows one page reads at most, so that a filter that matches little makes no page slow. A page may then hold
/// less than requested, and the next one continues.
const LOOK_AT: usize = 2_000;

impl Inner {
    pub(crate) async fn list(self: &Arc<Self>, request: &ListRequest) -> Result<ListReply> {
        let filter = request.filter();
        match filter.keys() {
            Some(keys) => {
                let rows = self.read(LookUp { keys: names(keys) }).await?;
                let after = request.cursor().map(position).transpose()?;
                Ok(page(request, &rows, after.as_ref(), false))
            }
            None => {
                let start = Position { key: filter.key_prefix().to_owned(), slot: -1 };
                let start = match request.cursor() {
                    Some(cursor) => position(cursor)?.max(start),
                    None => start,
                };
                let most = i64::try_from(LOOK_AT.max(request.limit() + 1)).unwrap_or(i64::MAX);
                let rows = self.read(Page { start, most }).await?;
                let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows == most);
                Ok(page(request, &rows, None, is_full))
            }
        }
    }
}

/// What a row says, with the clock of its reading.
pub(crate) fn stored(row: &Row) -> Option<(i64, Stored)> {
    let now = row.try_get(0).ok()?;
    let text: &str = row.try_get(1).ok()?;
    match Stored::parse(text) {
        Ok(stored) => Some((now, stored)),
        Err(error) => {
            trace::not_listed(text, &error);
            None
        }
    }
}

/// The matching records of these rows, in their order. `is_full` says that more rows may follow.
fn page(request: &ListRequest, rows: &[Row], after: Option<&Position>, is_full: bool) -> ListReply {
    let filter: &Filter = request.filter();
    let mut page = ListReply::new(Vec::new(), None);
    let mut last = None;
    for (now, stored) in rows.iter().filter_map(stored) {
        let position = Position::of(&stored);
        // In key order, all keys with the prefix are adjacent.
        if !stored.key.starts_with(filter.key_prefix()) {
            return page;
        }
        if after.is_some_and(|after| position <= *after) {
            continue;
        }
        match stored.record(now) {
            Ok(Some(record)) if filter.matches(&record) => {
                if page.records.len() == request.limit() {
                    page.next = last.as_ref().map(Position::cursor);
                    return page;
                }
                page.records.push(record);
            }
            Ok(_) => {}
            // One damaged row hides no other.
            Err(error) => trace::not_listed(&stored.key, &error),
        }
        last = Some(position);
    }
    if is_full {
        page.next = last.as_ref().map(Position::cursor);
    }
    page
}

struct LookUp {
    keys: Vec<String>,
}

impl Statement for LookUp {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(&sql.look_up, [(&self.keys as _, Type::TEXT_ARRAY)])
    }
}

struct Page {
    start: Position,
    most: i64,
}

impl Statement for Page {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.page,
            [
                (&self.start.key as _, Type::TEXT),
                (&self.start.slot as _, Type::INT4),
                (&self.most as _, Type::INT8),
            ],
        )
    }
}
