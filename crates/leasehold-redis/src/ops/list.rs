use leasehold_core::{Cursor, Key, ListReply, ListRequest, Result};

use crate::inner::Inner;
use crate::page::Position;
use crate::scan::STEPS;

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        match request.filter().keys() {
            Some(keys) => self.list_named(keys, request).await,
            None => self.list_scanned(request).await,
        }
    }

    async fn list_named(&self, keys: &[Key], request: &ListRequest) -> Result<ListReply> {
        let after = request.cursor().map(Cursor::as_bytes);
        let found = self.look_up(keys).await?;
        let mut left = found.records.into_iter().filter(|record| {
            request.filter().matches(record)
                && after.is_none_or(|after| Cursor::after(record).as_bytes() > after)
        });
        let records: Vec<_> = left.by_ref().take(request.limit()).collect();
        let next = left.next().and(records.last()).map(Cursor::after);
        let mut page = ListReply::new(records, next);
        if after.is_none() {
            page.unreadable = found.unreadable;
        }
        Ok(page)
    }

    async fn list_scanned(&self, request: &ListRequest) -> Result<ListReply> {
        let mut at = request.cursor().map(Position::of).transpose()?.unwrap_or_default();
        let mut page = ListReply::new(Vec::new(), None);
        for _ in 0..STEPS {
            let (here, next, found) = self.scan(at, request.filter()).await?;
            // Once, on the page on which the step begins.
            if here.shown.is_none() {
                page.unreadable.extend(found.unreadable);
            }
            at = here;
            for record in found.records {
                let here = Cursor::after(&record).as_bytes().to_vec();
                if !request.filter().matches(&record)
                    || at.shown.as_ref().is_some_and(|shown| here <= *shown)
                {
                    continue;
                }
                if page.records.len() == request.limit() {
                    // The next page begins within this step.
                    at.shown.get_or_insert_default();
                    page.next = Some(at.cursor());
                    return Ok(page);
                }
                at.shown = Some(here);
                page.records.push(record);
            }
            match next {
                Some(next) => at = next,
                None => return Ok(page),
            }
        }
        page.next = Some(at.cursor());
        Ok(page)
    }
}
