use std::time::Duration;

use crate::{Capabilities, Level};

/// The capabilities of a quorum of such nodes: what all of them can do, for terms up to `max_term`.
///
/// A request to a quorum has no limit on shared holders (three clients can each hold two of three nodes), and the
/// nodes' own limit is where refusals may begin. A quorum has no lease without end
/// (a node that forgot one could never safely grant again) and no fairness. It has tokens only if `fenced`, and
/// then no shared locks: two majorities could give the same token to readers granted at the same time.
pub fn capabilities(
    name: &'static str,
    nodes: &[Capabilities],
    max_term: Duration,
    fenced: bool,
) -> Capabilities {
    let all = |can: fn(&Capabilities) -> bool| !nodes.is_empty() && nodes.iter().all(can);
    let mut can = Capabilities::none(name);
    can.shared = !fenced && all(|node| node.shared);
    can.many_keys = all(|node| node.many_keys);
    can.keep = all(|node| node.keep);
    can.tokens = fenced && all(|node| node.tokens && node.raise);
    can.raise = can.tokens;
    can.notifications = all(|node| node.notifications);
    can.reports_expired = all(|node| node.reports_expired);
    can.max_term = max_term;
    for node in nodes {
        can.min_term = can.min_term.max(node.min_term);
        can.max_term = can.max_term.min(node.max_term);
        can.margin = can.margin.max(node.margin);
        can.max_key_bytes = can.max_key_bytes.min(node.max_key_bytes);
        can.text_ids |= node.text_ids;
        can.max_claims = smaller(can.max_claims, node.max_claims);
        can.max_holders = smaller(can.max_holders, node.max_holders);
    }
    can
}

/// The level of a quorum of nodes of these levels: no higher than the lowest of them; at most L1 without tokens
/// and L2 with them, because its writes are not one transaction.
pub fn level(nodes: impl IntoIterator<Item = Level>, fenced: bool) -> Level {
    let most = if fenced { Level::Fenced } else { Level::Lease };
    nodes.into_iter().fold(most, Level::min)
}

/// The smaller of two limits, where `None` is no limit.
fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}
