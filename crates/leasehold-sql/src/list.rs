//! Pages of a list.

use leasehold_core::{ListReply, ListRequest, Result, Unreadable};

use crate::dialect::Dialect;
use crate::position::Position;
use crate::stored::Stored;

/// How many rows one page reads at most, so that a filter that matches little makes no page slow. A page may then hold
/// less than requested, and the next one continues.
const LOOK_AT: usize = 2_000;

pub(crate) async fn list(dialect: &impl Dialect, request: &ListRequest) -> Result<ListReply> {
    let filter = request.filter();
    match filter.keys() {
        Some(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
            let found = dialect.look_up(&keys).await?;
            let after = request.cursor().map(Position::parse).transpose()?;
            Ok(page(request, found, after.as_ref(), false))
        }
        None => {
            let start = Position::before(filter.key_prefix());
            let start = match request.cursor() {
                Some(cursor) => Position::parse(cursor)?.max(start),
                None => start,
            };
            let most = LOOK_AT.max(request.limit() + 1);
            let (found, is_full) = dialect.page(&start, most).await?;
            Ok(page(request, found, None, is_full))
        }
    }
}

/// The matching records of these rows, in their order. `is_full` says that more rows may follow.
fn page(
    request: &ListRequest,
    found: Vec<(i64, Stored)>,
    after: Option<&Position>,
    is_full: bool,
) -> ListReply {
    let filter = request.filter();
    let mut page = ListReply::new(Vec::new(), None);
    let mut last = None;
    for (now, stored) in found {
        let position = Position::of(&stored);
        // In key order, all keys with the prefix are adjacent.
        if !stored.key.is_empty() && !stored.key.starts_with(filter.key_prefix()) {
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
            Err(error) => {
                if filter.matches_name(&stored.key) {
                    page.unreadable.push(Unreadable::new(stored.key, error));
                }
            }
        }
        // The row of a damaged one may be unknown.
        last = last.max(Some(position));
    }
    if is_full {
        page.next = last.as_ref().map(Position::cursor);
    }
    page
}
