//! Pages of a list.

use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::types;
use leasehold_core::{Key, ListReply, ListRequest, Page, Result, Unreadable};
use leasehold_driver::Deadline;

use crate::columns::{instant, now};
use crate::position::Position;
use crate::rows::{Stored, stored};
use crate::store::Inner;

/// How many rows one page reads at most, so that a filter that matches little makes no page slow. A page may then hold
/// less than requested, and the next one continues.
const LOOK_AT: usize = 2_000;

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let (client, filter) = (&self.client, request.filter());
        let after = request.cursor().map(Position::parse).transpose()?;
        if let Some(keys) = filter.keys() {
            let looked_up = self.sql.look_up(keys.iter());
            let mut rows = client.read(looked_up, client.deadline()).await?;
            rows.sort_by_cached_key(|row| Position::of(row).ok());
            return page(Page::new(request, after), &rows, "", false);
        }
        let prefix = filter.key_prefix();
        let first = Position::first(prefix);
        let start = after.map_or(first.clone(), |after| after.next().max(first));
        let most = LOOK_AT.max(request.limit() + 1);
        let rows = self.scan(start, most, client.deadline()).await?;
        page(Page::new(request, None), &rows, prefix, rows.len() == most)
    }

    /// At most so many rows from a position on.
    pub(crate) async fn scan(
        &self,
        from: Position,
        most: usize,
        until: Deadline,
    ) -> Result<Vec<Row>> {
        let statement = Statement::builder(&*self.sql.page)
            .add_param("key", from.key)
            .add_typed_param("id", from.id, types::bytes())
            .add_param("most", i64::try_from(most).unwrap_or(i64::MAX))
            .build();
        self.client.read(statement, until).await
    }
}

fn page(
    mut page: Page<'_, Position>,
    rows: &[Row],
    prefix: &str,
    is_full: bool,
) -> Result<ListReply> {
    let cursor = |last: Position| last.cursor();
    for row in rows {
        let at = Position::of(row)?;
        // In key order, all keys with the prefix are adjacent.
        if !at.key.starts_with(prefix) {
            return Ok(page.last());
        }
        let record = match stored(row) {
            Ok(Stored::Lease(holder)) => {
                let now = instant(now(row)?);
                Key::new(&at.key).map(|key| holder.record(&key, now)).map_err(Into::into)
            }
            Ok(Stored::Counter(_) | Stored::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        match record {
            Ok(record) => {
                if page.add(at, record).is_break() {
                    return Ok(page.followed(cursor));
                }
            }
            Err(error) => {
                let unreadable = Unreadable::new(at.key.clone(), error);
                page.add_unreadable(Some(at), unreadable);
            }
        }
    }
    Ok(if is_full { page.followed(cursor) } else { page.last() })
}
