//! Pages of a list.

use leasehold_core::{ListReply, ListRequest, Page, Result, Unreadable};

use crate::dialect::Dialect;
use crate::position::Position;
use crate::reply::Reply;
use crate::session::{Row, Source};
use crate::stored::Stored;

/// How many rows one page reads at most, so that a filter that matches little makes no page slow. A page may then hold
/// less than requested, and the next one continues.
const LOOK_AT: usize = 2_000;

pub(crate) async fn list(dialect: &impl Dialect, request: &ListRequest) -> Result<ListReply> {
    let pool = dialect.pool();
    let (filter, after) = (request.filter(), request.cursor().map(Position::parse).transpose()?);
    match filter.keys() {
        Some(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
            let found = pool.read(pool.deadline(), || dialect.look_up(&keys)).await?;
            let found = stored(dialect, &found)?;
            Ok(page(Page::new(request, after), found, "", false))
        }
        None => {
            let prefix = filter.key_prefix();
            let start = Position::before(prefix);
            let start = after.map_or(start.clone(), |after| after.max(start));
            let most = LOOK_AT.max(request.limit() + 1);
            let found = pool.read(pool.deadline(), || dialect.page(&start, most)).await?;
            let (is_full, found) = (found.len() == most, stored(dialect, &found)?);
            Ok(page(Page::new(request, None), found, prefix, is_full))
        }
    }
}

/// The rows of the table, each with the server's clock when it was read.
fn stored<D: Dialect>(dialect: &D, rows: &[Row<D::Source>]) -> Result<Vec<(i64, Stored)>> {
    let server = dialect.pool().server();
    rows.iter().map(|row| Reply::<<D::Source as Source>::Session>(server, row).stored()).collect()
}

/// The page of these rows, in their order, up to the first key without the prefix: in key order, all with it are adjacent.
/// `is_full` reports that more rows may follow.
fn page(
    mut page: Page<'_, Position>,
    found: Vec<(i64, Stored)>,
    prefix: &str,
    is_full: bool,
) -> ListReply {
    for (now, stored) in found {
        let position = Position::of(&stored);
        // The name of a damaged row may be unknown.
        if !stored.key.is_empty() && !stored.key.starts_with(prefix) {
            return page.last();
        }
        match stored.record(now) {
            Ok(record) => {
                if page.add(position, record).is_break() {
                    return page.followed(|position| position.cursor());
                }
            }
            Err(error) => {
                page.add_unreadable(Some(position), Unreadable::new(stored.key, error));
            }
        }
    }
    if is_full { page.followed(|position| position.cursor()) } else { page.last() }
}
