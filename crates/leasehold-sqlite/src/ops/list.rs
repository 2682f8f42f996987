use leasehold_core::{
    Cursor, Filter, Key, LeaseId, ListReply, ListRequest, Mode, Record, RecordTerm, Result,
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
        self.run("list", move |database, limit| {
            database.read(limit, |rows| match request.filter().keys() {
                Some(keys) => rows.load(&keys.iter().collect())?.list(&request, rows.now),
                None => page(rows, &request),
            })
        })
        .await
    }
}

/// As [`Table::list`](leasehold_core::Table::list), over rows that are read one by one.
fn page(rows: &Rows<'_>, request: &ListRequest) -> Result<ListReply> {
    let filter = request.filter();
    let (key, id) = start(filter, request.cursor())?;
    let mut page = ListReply::new(Vec::new(), None);
    let (mut looked_at, mut last) = (0, None);
    rows.each_record(&rows.sql.page, params![key, id], |stored| {
        // In key order, all keys with the prefix are adjacent.
        if !stored.key.as_str().starts_with(filter.key_prefix()) {
            return Next::Enough;
        }
        if looked_at == LOOK_AT {
            page.next = last.take();
            return Next::Enough;
        }
        looked_at += 1;
        let record = stored.holder.record(&stored.key, rows.now);
        match record.filter(|record| filter.matches(record)) {
            Some(_) if page.records.len() == request.limit() => {
                page.next = page.records.last().map(Cursor::after);
                return Next::Enough;
            }
            Some(record) => page.records.push(record),
            None => {}
        }
        if looked_at == LOOK_AT {
            last = Some(after(stored.key, stored.id));
        }
        Next::More
    })?;
    Ok(page)
}

/// The key and id after which a page begins.
fn start(filter: &Filter, cursor: Option<&Cursor>) -> Result<(String, Vec<u8>)> {
    // No id is empty, so this comes before every record with the prefix.
    let first = (filter.key_prefix().to_owned(), Vec::new());
    let after = cursor.map(Cursor::position).transpose()?;
    let after = after.map(|(key, id)| (key.as_str().to_owned(), id));
    Ok(after.map_or(first.clone(), |after| after.max(first)))
}

/// The cursor that continues after a record, returned or not.
fn after(key: Key, id: LeaseId) -> Cursor {
    let mut record = Record::new(key, Mode::Exclusive, RecordTerm::Expired(None));
    record.id = Some(id);
    Cursor::after(&record)
}
