//! The operations: load what is named, let the core decide, write what it changed.

use std::collections::BTreeSet;

use leasehold_core::{
    AcquireReply, AcquireRequest, Cursor, EvictReply, EvictRequest, EvictScope, Filter, Key,
    LeaseId, ListReply, ListRequest, Mode, Now, Record, RecordTerm, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, Result, Table,
};
use rusqlite::params;

use crate::database::Database;
use crate::limit::Limit;
use crate::rows::{Next, Rows};

/// How many records one page looks at, at most. A page may then hold less than was asked for, and the next
/// goes on: so a filter that matches little does not keep the thread from other operations.
const LOOK_AT: usize = 10_000;

pub(crate) fn acquire(
    database: &Database,
    limit: Limit,
    request: &AcquireRequest,
) -> Result<AcquireReply> {
    decide(database, limit, request.claims().keys(), |table, now| table.acquire(request, now))
}

pub(crate) fn renew(
    database: &Database,
    limit: Limit,
    request: &RenewRequest,
) -> Result<RenewReply> {
    let keys = request.leases().iter().flat_map(|lease| lease.claims().keys());
    decide(database, limit, keys, |table, now| Ok(table.renew(request, now)))
}

pub(crate) fn release(
    database: &Database,
    limit: Limit,
    request: &ReleaseRequest,
) -> Result<ReleaseReply> {
    let keys = request.leases().iter().flat_map(|lease| lease.keys());
    decide(database, limit, keys, |table, now| Ok(table.release(request, now)))
}

/// Evicts what is named: exact records, or expired ones of named keys.
pub(crate) fn evict_named(
    database: &Database,
    limit: Limit,
    request: &EvictRequest,
) -> Result<EvictReply> {
    let keys: Vec<&Key> = match request.what() {
        EvictScope::Exactly { targets, .. } => targets.iter().map(|target| &target.key).collect(),
        EvictScope::Expired(filter) => filter.keys().unwrap_or_default().iter().collect(),
    };
    decide(database, limit, keys, |table, now| Ok(table.evict(request, now)))
}

pub(crate) fn list(database: &Database, limit: Limit, request: &ListRequest) -> Result<ListReply> {
    database.read(limit, |rows| match request.filter().keys() {
        Some(keys) => rows.load(&keys.iter().collect())?.list(request, rows.now),
        None => page(rows, request),
    })
}

/// One immediate transaction around the core's decision (C2, C8).
fn decide<'a, T>(
    database: &Database,
    limit: Limit,
    keys: impl IntoIterator<Item = &'a Key>,
    apply: impl FnOnce(&mut Table, Now) -> Result<T>,
) -> Result<T> {
    let keys: BTreeSet<&Key> = keys.into_iter().collect();
    database.write(limit, |rows| {
        let before = rows.load(&keys)?;
        let mut table = before.clone();
        let reply = apply(&mut table, rows.now)?;
        rows.save(&keys, &before, &table)?;
        Ok(reply)
    })
}

/// As [`Table::list`], over rows that are read one by one.
fn page(rows: &Rows<'_>, request: &ListRequest) -> Result<ListReply> {
    let filter = request.filter();
    let (key, id) = start(filter, request.cursor())?;
    let mut page = ListReply::new(Vec::new(), None);
    let (mut looked_at, mut last) = (0, None);
    rows.each_record(&rows.sql.page, params![key, id], |stored| {
        // In key order, what begins with the prefix stands together.
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
    // No id is empty, so this is before every record that begins with the prefix.
    let first = (filter.key_prefix().to_owned(), Vec::new());
    let after = cursor.map(Cursor::position).transpose()?;
    let after = after.map(|(key, id)| (key.as_str().to_owned(), id));
    Ok(after.map_or(first.clone(), |after| after.max(first)))
}

/// The cursor that goes on after a record, shown or not.
fn after(key: Key, id: LeaseId) -> Cursor {
    let mut record = Record::new(key, Mode::Exclusive, RecordTerm::Expired(None));
    record.id = Some(id);
    Cursor::after(&record)
}
