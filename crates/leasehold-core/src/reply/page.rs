use std::ops::ControlFlow;

use crate::{Cursor, ListReply, ListRequest, Record, Unreadable};

/// Collects a page of a list from a store's entries, which come in the order of their positions. For stores.
///
/// `P` is a position: where an entry stands in the store. The next page begins after the last entry of this one.
#[derive(Debug)]
pub struct Page<'a, P> {
    request: &'a ListRequest,
    after: Option<P>,
    reply: ListReply,
    last: Option<P>,
    /// How many of those that are unreadable stand before the next page.
    passed: usize,
}

impl<'a, P: Ord> Page<'a, P> {
    /// An empty page of the entries after the position `after`; `None` for the first page.
    pub fn new(request: &'a ListRequest, after: Option<P>) -> Self {
        Self { request, after, reply: ListReply::new(Vec::new(), None), last: None, passed: 0 }
    }

    /// Adds the entry at `position`: its record, if it is one and matches. Breaks if the page is full; the entry then
    /// belongs to the next one.
    pub fn add(&mut self, position: P, record: Option<Record>) -> ControlFlow<()> {
        if self.is_earlier(&position) {
            return ControlFlow::Continue(());
        }
        if let Some(record) = record.filter(|record| self.request.filter().matches(record)) {
            if self.reply.records.len() == self.request.limit() {
                return ControlFlow::Break(());
            }
            self.reply.records.push(record);
        }
        self.pass(position);
        ControlFlow::Continue(())
    }

    /// Adds an entry that cannot be read, if its name matches; it hides no other. Without a position, it stands between
    /// the entries before and after it.
    pub fn add_unreadable(&mut self, position: Option<P>, unreadable: Unreadable) {
        if position.as_ref().is_some_and(|position| self.is_earlier(position)) {
            return;
        }
        if self.request.filter().matches_name(&unreadable.name) {
            self.reply.unreadable.push(unreadable);
        }
        if let Some(position) = position {
            self.pass(position);
        }
    }

    /// The last page.
    pub fn last(self) -> ListReply {
        self.reply
    }

    /// A page that another one follows. `cursor` shows the position after which that begins: of the last entry, else where
    /// this page began.
    pub fn followed(mut self, cursor: impl FnOnce(P) -> Cursor) -> ListReply {
        self.reply.unreadable.truncate(self.passed);
        self.reply.next = self.last.or(self.after).map(cursor);
        self.reply
    }

    fn is_earlier(&self, position: &P) -> bool {
        self.after.as_ref().is_some_and(|after| position <= after)
    }

    fn pass(&mut self, position: P) {
        self.passed = self.reply.unreadable.len();
        self.last = self.last.take().max(Some(position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Filter, Key, Mode, RecordTerm, Remaining};

    fn record(key: &str) -> Record {
        let live = RecordTerm::Live(Remaining::Never);
        Record::new(Key::new(key).unwrap(), Mode::Exclusive, live)
    }

    fn unreadable(name: &str) -> Unreadable {
        Unreadable::new(name, Error::corrupt("damaged"))
    }

    fn cursor(position: u8) -> Cursor {
        Cursor::new(vec![position])
    }

    fn shown(page: &ListReply) -> Vec<&str> {
        let records = page.records.iter().map(|record| record.key.as_str());
        records.chain(page.unreadable.iter().map(|one| &*one.name)).collect()
    }

    #[test]
    fn the_next_page_begins_after_the_last_entry() {
        let request = ListRequest::new(Filter::default().with_prefix("a")).with_limit(1);
        let mut page = Page::new(&request, None);
        page.add_unreadable(None, unreadable("a1"));
        assert!(page.add(2, Some(record("a2"))).is_continue());
        page.add_unreadable(None, unreadable("b"));
        assert!(page.add(3, Some(record("b3"))).is_continue());
        page.add_unreadable(None, unreadable("a4"));
        assert!(page.add(5, Some(record("a5"))).is_break());
        let first = page.followed(cursor);
        assert_eq!((shown(&first), &first.next), (vec!["a2", "a1"], &Some(cursor(3))));

        let mut page = Page::new(&request, Some(3));
        for position in 2..=3 {
            page.add_unreadable(Some(position), unreadable("a"));
            assert!(page.add(position, Some(record("a"))).is_continue());
        }
        page.add_unreadable(None, unreadable("a4"));
        assert!(page.add(5, Some(record("a5"))).is_continue());
        let last = page.last();
        assert_eq!((shown(&last), &last.next), (vec!["a5", "a4"], &None));
    }

    #[test]
    fn a_page_without_an_entry_continues_where_it_began() {
        let request = ListRequest::new(Filter::default());
        let mut page = Page::new(&request, Some(7));
        page.add_unreadable(None, unreadable("a"));
        let page = page.followed(cursor);
        assert_eq!((shown(&page), &page.next), (vec![], &Some(cursor(7))));
    }
}
