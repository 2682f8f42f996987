use std::convert::identity;

use leasehold_core::{Cursor, Key, ListReply, ListRequest, Page, Result};

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
        let found = self.look_up(keys).await?;
        let mut page = Page::new(request, request.cursor().cloned());
        // Before all records, so on the first page.
        for unreadable in found.unreadable {
            page.add_unreadable(Some(Cursor::new(Vec::new())), unreadable);
        }
        for record in found.records {
            if page.add(Cursor::after(&record), Some(record)).is_break() {
                return Ok(page.followed(identity));
            }
        }
        Ok(page.last())
    }

    async fn list_scanned(&self, request: &ListRequest) -> Result<ListReply> {
        let filter = request.filter();
        let start = request.cursor().map(Position::of).transpose()?.unwrap_or_default();
        let (mut at, mut next, mut found) = self.scan(start, filter).await?;
        // The positions of entries: a step, and in it what `Cursor::after` makes of a record.
        let mut step = 0;
        let mut page = Page::new(request, at.shown.take().map(|shown| (step, shown)));
        loop {
            // Once, on the page on which the step begins.
            for unreadable in found.unreadable {
                page.add_unreadable(Some((step, Vec::new())), unreadable);
            }
            for record in found.records {
                let position = (step, Cursor::after(&record).as_bytes().to_vec());
                if page.add(position, Some(record)).is_break() {
                    // The next page begins within this step.
                    return Ok(page.followed(|(of, shown)| {
                        at.shown = Some(if of == step { shown } else { Vec::new() });
                        at.cursor()
                    }));
                }
            }
            step += 1;
            match next {
                Some(after) if step < STEPS => {
                    (at, next, found) = self.scan(after, filter).await?;
                }
                next => {
                    let mut page = page.last();
                    page.next = next.map(|after| after.cursor());
                    return Ok(page);
                }
            }
        }
    }
}
