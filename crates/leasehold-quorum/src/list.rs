use std::sync::Arc;

use leasehold_core::tally::majority;
use leasehold_core::{Cursor, Effect, Error, List, NodeReport, Page, Result, Store};

use crate::round::{Round, failure};
use crate::store::{Inner, NAME};

/// Where a listing goes on: on which node, after how many that did not answer, and where on that node.
struct Position {
    node: u16,
    failed: u16,
    inner: Option<Cursor>,
}

impl Position {
    const START: Self = Self { node: 0, failed: 0, inner: None };

    fn to_cursor(&self) -> Cursor {
        let mut bytes = [self.node.to_be_bytes(), self.failed.to_be_bytes()].concat();
        bytes.push(u8::from(self.inner.is_some()));
        bytes.extend_from_slice(self.inner.as_ref().map_or(&[], |inner| inner.as_bytes()));
        Cursor::new(bytes)
    }

    fn of(cursor: &Cursor, nodes: usize) -> Result<Self> {
        let foreign = || Error::invalid_input("the cursor is not one that this store gave");
        let [n0, n1, f0, f1, has_inner, inner @ ..] = cursor.as_bytes() else {
            return Err(foreign());
        };
        let node = u16::from_be_bytes([*n0, *n1]);
        if usize::from(node) >= nodes || *has_inner > 1 || (*has_inner == 0 && !inner.is_empty()) {
            return Err(foreign());
        }
        let inner = (*has_inner == 1).then(|| Cursor::new(inner.to_vec()));
        Ok(Self { node, failed: u16::from_be_bytes([*f0, *f1]), inner })
    }
}

impl Inner {
    /// Shows the records of one node after the other, each node's own. A filter that names keys asks all
    /// nodes that are left at once.
    pub(crate) async fn list(self: &Arc<Self>, request: &List) -> Result<Page> {
        let position = request.cursor().map(|cursor| Position::of(cursor, self.nodes.len()));
        let position = position.transpose().map_err(|e| e.with_context(NAME, "list"))?;
        let Position { node: first, mut failed, inner } = position.unwrap_or(Position::START);
        let start = usize::from(first);
        let end = if request.filter().keys().is_some() { self.nodes.len() } else { start + 1 };
        let mut round = Round::new(self, "list", self.limits.of_term(None));
        for (at, node) in self.nodes.iter().enumerate() {
            if !(start..end).contains(&at) {
                round.answers[at] = Some(Ok(Page::new(Vec::new(), None)));
                continue;
            }
            let mut own = List::new(request.filter().clone()).with_limit(request.limit());
            if let Some(inner) = inner.clone().filter(|_| at == start) {
                own = own.with_cursor(inner);
            }
            let (store, reporter) = (node.store.clone(), round.reporter(at));
            self.spawn(async move { reporter.tell(store.list(&own).await) });
        }
        round.all().await;
        let mut page = Page::new(Vec::new(), None);
        let mut node = first;
        for at in start..end {
            let name = self.nodes[at].name.as_str();
            match round.answers[at].take() {
                Some(Ok(mut own)) => {
                    if page.records.len() + own.records.len() > request.limit() {
                        break;
                    }
                    let shown_by: Arc<str> = name.into();
                    for record in &mut own.records {
                        record.node = Some(Arc::clone(&shown_by));
                    }
                    page.records.extend(own.records);
                    page.nodes.push(NodeReport::new(name));
                    if own.next.is_some() {
                        page.next = Some(Position { node, failed, inner: own.next }.to_cursor());
                        break;
                    }
                }
                Some(Err(error)) if !error.is_retryable() && inner.is_some() && at == start => {
                    return Err(error);
                }
                Some(Err(error)) => {
                    failed += 1;
                    page.nodes.push(NodeReport::failed(name, error));
                }
                None => {}
            }
            node += 1;
        }
        // Fewer than a majority cannot tell that nobody holds a key (C10).
        if usize::from(failed) > self.nodes.len() - majority(self.nodes.len()) {
            return Err(failure("list", None, Effect::None, page.nodes));
        }
        if page.next.is_none() && usize::from(node) < self.nodes.len() {
            page.next = Some(Position { node, failed, inner: None }.to_cursor());
        }
        if !self.can.tokens {
            page.records.iter_mut().for_each(|record| record.token = None);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_were_written_and_others_are_refused() {
        for (node, failed, inner) in
            [(0, 0, None), (2, 1, None), (1, 0, Some(vec![])), (2, 2, Some(vec![0, 255, 7]))]
        {
            let inner = inner.map(Cursor::new);
            let cursor = Position { node, failed, inner: inner.clone() }.to_cursor();
            let read = Position::of(&cursor, 3).unwrap();
            assert_eq!((read.node, read.failed, read.inner), (node, failed, inner));
        }
        for bytes in [&b""[..], b"job\0id", &[0, 3, 0, 0, 0], &[0, 0, 0, 0, 0, 1], &[0, 0, 0, 0]] {
            assert!(Position::of(&Cursor::new(bytes.to_vec()), 3).is_err(), "{bytes:?}");
        }
    }
}
