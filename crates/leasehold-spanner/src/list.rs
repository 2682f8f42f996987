//! Pages of a list.

use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::types;
use leasehold_core::{Cursor, Key, ListReply, ListRequest, Page, Result, Unreadable};

use crate::rows::{Stored, id, instant, name, now, stored};
use crate::store::Inner;

/// How many rows one page reads at most, so that a filter that matches little makes no page slow. A page may then hold
/// less than requested, and the next one continues.
const LOOK_AT: usize = 2_000;

/// Where a row stands: the text of its key, and its id.
type Position = (String, Vec<u8>);

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let (client, filter) = (&self.client, request.filter());
        let after = request.cursor().map(Cursor::position).transpose()?;
        let after = after.map(|(key, id)| (key.as_str().to_owned(), id));
        if let Some(keys) = filter.keys() {
            let mut names: Vec<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
            names.sort_unstable();
            names.dedup();
            let statement = Statement::builder(&*client.sql.look_up)
                .add_typed_param("keys", names, types::array(types::string()))
                .build();
            let mut rows = client.read(statement, client.deadline()).await?;
            rows.sort_by_cached_key(|row| position(row).ok());
            return page(Page::new(request, after), &rows, "", false);
        }
        // No row's id is before that of a counter.
        let prefix = filter.key_prefix();
        let first = (prefix.to_owned(), Vec::new());
        let start = after.map_or(first.clone(), |after| after.max(first));
        let most = LOOK_AT.max(request.limit() + 1);
        let rows = self.scan(&start, most).await?;
        page(Page::new(request, None), &rows, prefix, rows.len() == most)
    }

    /// At most so many rows after a position.
    pub(crate) async fn scan(&self, (key, id): &Position, most: usize) -> Result<Vec<Row>> {
        let statement = Statement::builder(&*self.client.sql.page)
            .add_param("key", key.as_str())
            .add_typed_param("id", id.clone(), types::bytes())
            .add_param("most", i64::try_from(most).unwrap_or(i64::MAX))
            .build();
        self.client.read(statement, self.client.deadline()).await
    }
}

pub(crate) fn position(row: &Row) -> Result<Position> {
    Ok((name(row)?, id(row)?.unwrap_or_default()))
}

fn page(
    mut page: Page<'_, Position>,
    rows: &[Row],
    prefix: &str,
    is_full: bool,
) -> Result<ListReply> {
    let cursor = |(key, id): Position| Cursor::new([key.as_bytes(), b"\0", &id].concat());
    for row in rows {
        let at = position(row)?;
        // In key order, all keys with the prefix are adjacent.
        if !at.0.starts_with(prefix) {
            return Ok(page.last());
        }
        let record = match stored(row) {
            Ok(Stored::Lease(holder)) => {
                let now = instant(now(row)?);
                Key::new(&at.0).map(|key| holder.record(&key, now)).map_err(Into::into)
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
                let unreadable = Unreadable::new(at.0.clone(), error);
                page.add_unreadable(Some(at), unreadable);
            }
        }
    }
    Ok(if is_full { page.followed(cursor) } else { page.last() })
}
