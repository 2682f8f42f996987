//! C1: one exchange with each server per operation, once the store is in use.

use leasehold_core::{
    EvictRequest, Filter, ListRequest, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest,
    Store,
};

use crate::attempt::Attempt;
use crate::case::{CaseResult, PASSED, behind_proxies, cases};
use crate::failure::ensure;
use crate::fixture::{BehindProxies, Fixture};
use crate::{Backing, Result};

cases! {
    c01_each_operation_is_one_exchange,
    c01_an_operation_on_several_keys_is_one_exchange [ManyKeys],
    c01_many_leases_are_renewed_and_released_together,
}

/// The limit for many leases: a store may send them in parts, all at once, each with its own answer.
const FEW: usize = 20;

/// Counts the exchanges of one operation after another.
struct Count<'a, B: Backing> {
    fixture: &'a Fixture<B>,
    behind: &'a BehindProxies<B::Store>,
    before: Vec<usize>,
    /// Which server decides, if not each does.
    decides: Option<usize>,
}

/// Whether every server was asked at most `most` times, and at least once. Of a server and its replicas only that one
/// counts.
fn is_within(exchanges: &[usize], decides: Option<usize>, most: usize) -> bool {
    match decides {
        Some(server) => (1..=most).contains(&exchanges[server]),
        None => exchanges.iter().all(|count| (1..=most).contains(count)),
    }
}

impl<'a, B: Backing> Count<'a, B> {
    async fn new(fixture: &'a Fixture<B>, behind: &'a BehindProxies<B::Store>) -> Result<Self> {
        let decides = fixture.decides().await?;
        let mut count = Self { fixture, behind, before: Vec::new(), decides };
        count.since().await?;
        Ok(count)
    }

    /// Exchanges with each server since the last call.
    async fn since(&mut self) -> Result<Vec<usize>> {
        self.fixture.followed().await?;
        let now = self.behind.exchanges();
        let since = now.iter().zip(&self.before).map(|(now, before)| now - before).collect();
        self.before = now;
        Ok(since)
    }

    /// Checks an operation that asks every server, each at most `most` times.
    async fn at_most(&mut self, most: usize, what: &str) -> Result {
        let since = self.since().await?;
        let is_within = is_within(&since, self.decides, most);
        ensure!(is_within, "{what} took {since:?} exchanges with the servers, not 1 to {most}");
        Ok(())
    }

    /// Checks one page of a listing, which need not come from every server.
    async fn page(&mut self, most: usize) -> Result {
        if self.decides.is_some() {
            return self.at_most(most, "a page").await;
        }
        let since = self.since().await?;
        let is_within = since.iter().all(|count| *count <= most) && since.iter().sum::<usize>() > 0;
        ensure!(is_within, "a page took {since:?} exchanges with the servers, not at most {most}");
        Ok(())
    }
}

async fn each_is_one<B: Backing>(fixture: &Fixture<B>, keys: &[&str]) -> CaseResult {
    let behind = behind_proxies!(fixture);
    let store = behind.client.store();
    // In the first round, connections are made, and the server may have to load scripts or statements.
    for round in 0..2 {
        let least = if round == 0 { usize::MAX } else { 1 };
        let allowed = fixture.reports.exchanges;
        let times = if keys.len() > 1 { allowed.several_keys } else { 1 };
        let most = |allowed: usize| (times * allowed).max(least);
        let mut count = Count::new(fixture, &behind).await?;
        let (lease, other) = (fixture.exclusive_all(keys), fixture.exclusive_all(keys));
        behind.client.grant(&lease).await?;
        count.at_most(most(allowed.acquire), "a granted acquire").await?;
        behind.client.refuse(&other).await?;
        count.at_most(most(allowed.refusal), "a refused acquire").await?;
        behind.client.confirm(&lease).await?;
        count.at_most(most(allowed.confirmation), "an acquire that was sent again").await?;
        behind.client.held(&lease, lease.term).await?;
        count.at_most(most(allowed.renew), "a renewal").await?;
        store.list(&ListRequest::new(Filter::default().with_keys(lease.keys()))).await?;
        count.at_most(most(allowed.list), "a look-up by key").await?;
        store.list(&ListRequest::new(Filter::default())).await?;
        count.page(most(allowed.list)).await?;
        behind.client.released(&lease).await?;
        count.at_most(most(allowed.release), "a release").await?;
        behind.client.not_held(&lease).await?;
        count.at_most(most(allowed.not_held), "a release of what is not held").await?;
        behind.client.evict(EvictRequest::expired(Filter::default())).await?;
        count.at_most(most(allowed.purge), "a purge").await?;
        let target = fixture.exclusive_all(keys);
        behind.client.grant(&target).await?;
        count.at_most(most(allowed.acquire), "a granted acquire").await?;
        behind.client.evict_these(target.targets(), None).await?;
        count.at_most(most(allowed.evict), "an eviction").await?;
        store.check().await?;
        count.at_most(most(allowed.check), "a check").await?;
    }
    PASSED
}

async fn c01_each_operation_is_one_exchange<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    each_is_one(fixture, &["job"]).await
}

async fn c01_an_operation_on_several_keys_is_one_exchange<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    each_is_one(fixture, &["a", "b", "c"]).await
}

async fn c01_many_leases_are_renewed_and_released_together<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let behind = behind_proxies!(fixture);
    let many = fixture.reports.many;
    let mut leases: Vec<_> = (0..many).map(|n| fixture.exclusive(&format!("job:{n}"))).collect();
    for lease in &mut leases {
        // A quorum gives a renewal a quarter of the term, which a busy machine needs.
        lease.term = fixture.ttl(100);
        fixture.client.grant(lease).await?;
    }
    // A first round makes the connection and lets the server load scripts or statements.
    let warm = fixture.exclusive("warm");
    behind.client.grant(&warm).await?;
    behind.client.held(&warm, warm.term).await?;
    behind.client.released(&warm).await?;
    let mut count = Count::new(fixture, &behind).await?;
    let renewals = leases.iter().map(|lease| lease.renewal(lease.term)).collect();
    let renewed = behind.client.renew_all(RenewRequest::new(renewals)).await?;
    let allowed = fixture.reports.exchanges;
    let most = |each: usize| if allowed.each_lease { each * leases.len() + FEW } else { FEW };
    count.at_most(most(allowed.renew), "the renewal of many leases").await?;
    let other = renewed.iter().find(|renewed| !matches!(renewed, RenewOutcome::Held(_)));
    ensure!(other.is_none(), "not all of many leases were held: {other:?}");
    let endings = ReleaseRequest::new(leases.iter().map(Attempt::ending).collect());
    let released = behind.client.release_all(endings).await?;
    count.at_most(most(allowed.release), "the release of many leases").await?;
    let other = released.iter().find(|released| !matches!(released, ReleaseOutcome::Released));
    ensure!(other.is_none(), "not all of many leases were released: {other:?}");
    PASSED
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn of_a_server_and_its_replicas_only_the_one_that_decides_is_counted() {
        // The nodes of a quorum are all asked.
        assert!(is_within(&[1, 1, 1], None, 1));
        assert!(!is_within(&[1, 0, 1], None, 1) && !is_within(&[1, 2, 1], None, 1));
        // A driver watches the replicas.
        assert!(is_within(&[7, 1, 0], Some(1), 1));
        assert!(!is_within(&[7, 2, 0], Some(1), 1) && !is_within(&[1, 0, 1], Some(1), 1));
    }
}
