use std::sync::Arc;

use leasehold_core::tally::{lasting_kind, majority};
use leasehold_core::{
    Cursor, Effect, Error, ErrorKind, ListReply, ListRequest, NodeReport, Result, Store,
};

use crate::inner::Inner;
use crate::round::{Round, failure};

/// The position of a listing: the node, how those before it failed, and the position on that node.
struct Position {
    node: u16,
    failed: Vec<ErrorKind>,
    inner: Option<Cursor>,
}

/// The failures of a node, in the order of their bytes in a cursor. Any other failure counts as the last.
const KINDS: [ErrorKind; 7] = [
    ErrorKind::Unavailable,
    ErrorKind::InvalidInput,
    ErrorKind::Unsupported,
    ErrorKind::Denied,
    ErrorKind::Incompatible,
    ErrorKind::Corrupt,
    ErrorKind::Unexpected,
];

impl Position {
    const START: Self = Self { node: 0, failed: Vec::new(), inner: None };

    fn to_cursor(&self) -> Cursor {
        let mut bytes = self.node.to_be_bytes().to_vec();
        let failed = self.failed.iter().map(|kind| {
            (0..).zip(KINDS).find(|(_, known)| known == kind).map_or(LAST_KIND, |(byte, _)| byte)
        });
        bytes.extend(failed);
        bytes.push(if self.inner.is_some() { INNER } else { NO_INNER });
        bytes.extend_from_slice(self.inner.as_ref().map_or(&[], |inner| inner.as_bytes()));
        Cursor::new(bytes)
    }

    fn of(cursor: &Cursor, nodes: usize) -> Result<Self> {
        Self::read(cursor.as_bytes(), nodes)
            .ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
    }

    fn read(bytes: &[u8], nodes: usize) -> Option<Self> {
        let [n0, n1, rest @ ..] = bytes else { return None };
        let node = u16::from_be_bytes([*n0, *n1]);
        let end = rest.iter().position(|byte| matches!(*byte, INNER | NO_INNER))?;
        let (failed, inner) = (&rest[..end], &rest[end + 1..]);
        let failed = failed.iter().map(|byte| KINDS.get(usize::from(*byte)).copied());
        let failed = failed.collect::<Option<Vec<_>>>()?;
        let has_inner = rest[end] == INNER;
        let is_ours = usize::from(node) < nodes
            && failed.len() <= usize::from(node)
            && (has_inner || inner.is_empty());
        let inner = has_inner.then(|| Cursor::new(inner.to_vec()));
        is_ours.then_some(Self { node, failed, inner })
    }
}

/// Ends the failures in a cursor; the node's own cursor follows, or none.
const INNER: u8 = 0xFF;
const NO_INNER: u8 = 0xFE;
const LAST_KIND: u8 = 6;

impl Inner {
    /// Lists the records of one node after the other. A filter that names keys queries all remaining nodes at once.
    pub(crate) async fn list(self: &Arc<Self>, request: &ListRequest) -> Result<ListReply> {
        let position = request.cursor().map(|cursor| Position::of(cursor, self.nodes.len()));
        let position = position.transpose()?;
        let Position { node: first, mut failed, inner } = position.unwrap_or(Position::START);
        let start = usize::from(first);
        let end = if request.filter().keys().is_some() { self.nodes.len() } else { start + 1 };
        let (mut round, reporters) = Round::new(self, "list", self.limits.of_term(None));
        for (at, (node, reporter)) in self.nodes.iter().zip(reporters).enumerate() {
            if !(start..end).contains(&at) {
                round.answers[at] = Some(Ok(ListReply::new(Vec::new(), None)));
                continue;
            }
            let mut own = ListRequest::new(request.filter().clone()).with_limit(request.limit());
            if let Some(inner) = inner.clone().filter(|_| at == start) {
                own = own.with_cursor(inner);
            }
            let store = node.store.clone();
            self.spawn(async move { reporter.report(store.list(&own).await) });
        }
        round.all().await;
        let mut page = ListReply::new(Vec::new(), None);
        let mut reports = Vec::new();
        let (mut node, mut next) = (first, None);
        for at in start..end {
            let name = self.nodes[at].name.as_str();
            let sent = inner.as_ref().filter(|_| at == start);
            let answer = round.answers[at].take();
            match answer.map(|own| own.and_then(|own| sensible(own, request.limit(), sent))) {
                Some(Ok(mut own)) => {
                    if page.records.len() + own.records.len() > request.limit() {
                        break;
                    }
                    let shown_by: Arc<str> = name.into();
                    for record in &mut own.records {
                        record.node = Some(Arc::clone(&shown_by));
                    }
                    for unreadable in &mut own.unreadable {
                        unreadable.node = Some(Arc::clone(&shown_by));
                    }
                    page.records.extend(own.records);
                    page.unreadable.extend(own.unreadable);
                    reports.push(NodeReport::new(name));
                    if own.next.is_some() {
                        next = own.next;
                        break;
                    }
                }
                Some(Err(error)) => {
                    failed.push(error.kind());
                    reports.push(NodeReport::failed(name, error));
                }
                None => {}
            }
            node += 1;
        }
        page.nodes = reports.into_iter().collect();
        // Less than a majority cannot report that nobody holds a key (C10).
        let count = self.nodes.len();
        if failed.len() > count - majority(count) {
            let kind = lasting_kind(count, &failed);
            return Err(failure("list", kind, Effect::NotApplied, page.nodes));
        }
        if usize::from(node) < count {
            page.next = Some(Position { node, failed, inner: next }.to_cursor());
        }
        if !self.can.tokens {
            page.records.iter_mut().for_each(|record| record.token = None);
        }
        Ok(page)
    }
}

/// Accepts only a page that lets the listing end: no longer than requested, and not followed by itself.
fn sensible(page: ListReply, limit: usize, sent: Option<&Cursor>) -> Result<ListReply> {
    let shown = page.records.len();
    if shown > limit {
        let message =
            format!("it returned {shown} records although at most {limit} were requested");
        return Err(Error::unexpected(message));
    }
    if page.next.is_some() && page.next.as_ref() == sent {
        return Err(Error::unexpected("its page names itself as the next one"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_others_are_refused() {
        let kinds = &KINDS[..];
        for (node, failed, inner) in [
            (0, &kinds[..0], None),
            (8, kinds, None),
            (1, &kinds[..1], Some(vec![])),
            (2, &kinds[5..], Some(vec![0, 255, 254, 7])),
        ] {
            let (inner, failed) = (inner.map(Cursor::new), failed.to_vec());
            let cursor =
                Position { node, failed: failed.clone(), inner: inner.clone() }.to_cursor();
            let read = Position::of(&cursor, 9).unwrap();
            assert_eq!((read.node, read.failed, read.inner), (node, failed, inner));
        }
        for bytes in [
            &b""[..],
            b"job\0id",
            &[0, 3, NO_INNER],
            &[0, 0, NO_INNER, 1],
            &[0, 0],
            &[0, 0, 0, NO_INNER],
            &[0, 1, 7, NO_INNER],
        ] {
            assert!(Position::of(&Cursor::new(bytes.to_vec()), 3).is_err(), "{bytes:?}");
        }
    }
}
