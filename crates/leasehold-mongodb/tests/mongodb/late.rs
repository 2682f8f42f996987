//! Requests whose write waited past the end of the term that they continue.

use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    AcquireRequest, Claim, Claims, ErrorKind, FencingToken, Filter, ListRequest, LostReason, Mode,
    RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::ClientSession;
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, is_renewed, key, renewed};
use leasehold_testkit::{LONG, in_time, until};

use crate::on_clock::{OnClock, connect};

/// The term of the leases, all but its last millisecond, and what takes a request past its end.
pub(crate) const TERM: Duration = Duration::from_secs(10);
pub(crate) const ALMOST: u64 = 9_999;
pub(crate) const PAST: u64 = 2;

const DELAY: Duration = Duration::from_millis(100);

fn lease(name: &str, mode: Mode) -> AcquireRequest {
    acquire_for(name, "a", mode, TERM)
}

/// A lease of several keys.
fn both() -> AcquireRequest {
    let claims = ["k", "l"].map(|name| Claim { key: key(name), mode: Mode::Exclusive });
    AcquireRequest::new(id("a"), Claims::new(claims).unwrap(), Ttl::new(TERM).unwrap())
}

fn renewal(of: &AcquireRequest) -> RenewRequest {
    let entry = RenewEntry::extend(of.id().clone(), of.claims().clone(), Ttl::new(LONG).unwrap());
    RenewRequest::new(vec![entry])
}

fn is_expired(outcome: leasehold_core::Result<RenewOutcome>) {
    assert!(matches!(outcome, Ok(RenewOutcome::Lost(Some(LostReason::Expired)))), "{outcome:?}");
}

/// Nothing is left of a lease of this key, and another gets it at once.
async fn is_undone(store: &MongodbStore, name: &str) {
    let of_key = Filter::default().with_key(key(name));
    let listed = store.list(&ListRequest::new(of_key)).await.unwrap();
    assert!(listed.records.is_empty(), "{listed:?}");
    granted(store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
}

pub(crate) async fn end(mut session: ClientSession, commits: bool) {
    match commits {
        true => session.commit_transaction().await.unwrap(),
        false => session.abort_transaction().await.unwrap(),
    }
}

impl OnClock {
    /// Sends a request a millisecond before the end of the term of `a`, and lets its write wait until after it.
    pub(crate) async fn late<T>(
        &self,
        name: &str,
        commits: bool,
        request: impl Future<Output = T>,
    ) -> T {
        self.passes(ALMOST);
        let session = self.hold(name).await;
        let passing = async {
            self.until_it_waits().await;
            self.passes(PAST);
            end(session, commits).await;
        };
        in_time(async { tokio::join!(request, passing) }).await.0
    }
}

#[tokio::test]
async fn a_renewal_that_waited_past_the_end_is_undone() {
    let on = OnClock::new().await;
    for (mode, commits) in [(Mode::Exclusive, true), (Mode::SHARED, false)] {
        let name = format!("k{commits}");
        let lease = lease(&name, mode);
        granted(on.store.acquire(&lease).await);
        is_expired(on.late(&name, commits, renewed(&on.store, &renewal(&lease))).await);
        is_undone(&on.store, &name).await;
    }
}

#[tokio::test]
async fn a_renewal_that_is_sent_after_the_end_writes_nothing() {
    let on = OnClock::new().await;
    let lease = lease("k", Mode::Exclusive);
    granted(on.store.acquire(&lease).await);
    on.passes(ALMOST + PAST);
    let document = async || on.collection.find_one(doc! { "resource": "k" }).await.unwrap();
    let before = document().await;
    is_expired(renewed(&on.store, &renewal(&lease)).await);
    assert_eq!(document().await, before);
}

#[tokio::test]
async fn a_renewal_that_waited_but_not_past_the_end_holds() {
    let on = OnClock::new().await;
    let lease = lease("k", Mode::Exclusive);
    granted(on.store.acquire(&lease).await);
    let session = on.hold("k").await;
    let passing = async {
        on.until_it_waits().await;
        on.passes(ALMOST);
        end(session, true).await;
    };
    let renewal = renewal(&lease);
    let (outcome, ()) = tokio::join!(renewed(&on.store, &renewal), passing);
    assert!(matches!(outcome, Ok(RenewOutcome::Held(_))), "{outcome:?}");
    on.passes(ALMOST);
    is_renewed(&on.store, "k", "a", Mode::Exclusive).await;
}

/// It is a lease anew, with a greater token.
#[tokio::test]
async fn an_acquire_that_confirms_past_the_end_is_a_new_grant() {
    let on = OnClock::new().await;
    for (mode, commits) in [(Mode::Exclusive, false), (Mode::SHARED, true)] {
        let name = format!("k{commits}");
        let lease = lease(&name, mode);
        let first = granted(on.store.acquire(&lease).await);
        let again = granted(on.late(&name, commits, on.store.acquire(&lease)).await);
        assert!(again.fresh && again.token > first.token, "{first:?}, {again:?}");
        is_renewed(&on.store, &name, "a", mode).await;
    }
}

/// A transaction that meets another write begins again, and looks at the clock again.
#[tokio::test]
async fn a_renewal_of_several_keys_that_waited_past_the_end_is_lost() {
    let on = OnClock::new().await;
    granted(on.store.acquire(&both()).await);
    on.passes(ALMOST);
    let (session, before) = (on.hold("l").await, on.aborted().await);
    let passing = async {
        until(async || on.aborted().await > before).await;
        on.passes(PAST);
        end(session, true).await;
    };
    let renewal = renewal(&both());
    is_expired(in_time(async { tokio::join!(renewed(&on.store, &renewal), passing) }).await.0);
    // The record of what expired stays until clocks of others show so too.
    on.passes(1_000);
    is_undone(&on.store, "k").await;
    is_undone(&on.store, "l").await;
}

/// Sends a request of two commands through a slow network when `begin` has passed, and lets `after` pass between them: the
/// transaction of several keys looks at the clock first, and a batch last.
pub(crate) async fn slow<T>(
    on: &OnClock,
    delay: Duration,
    (begin, after): (u64, u64),
    request: impl AsyncFnOnce(&MongodbStore) -> T,
) -> T {
    let proxy = Proxy::before(on.set.nodes[0].address().parse().unwrap()).await.unwrap();
    proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
    let store = connect(&proxy.address().to_string(), "1s").await;
    // It opens its connection now.
    store.list(&ListRequest::new(Filter::default())).await.unwrap();
    on.passes(begin);
    let before = proxy.exchanges();
    proxy.set(Fault::Delay(delay));
    let passing = async {
        until(async || proxy.exchanges() >= before + 2).await;
        on.passes(after);
        proxy.set(Fault::None);
    };
    in_time(async { tokio::join!(request(&store), passing) }).await.0
}

#[tokio::test]
async fn a_renewal_of_several_keys_that_is_written_past_the_end_is_undone() {
    let on = OnClock::new().await;
    granted(on.store.acquire(&both()).await);
    let outcome =
        slow(&on, DELAY, (ALMOST, PAST), async |store| renewed(store, &renewal(&both())).await)
            .await;
    is_expired(outcome);
    is_undone(&on.store, "k").await;
    is_undone(&on.store, "l").await;
}

#[tokio::test]
async fn an_acquire_of_several_keys_that_confirms_past_the_end_is_a_new_grant() {
    let on = OnClock::new().await;
    let first = granted(on.store.acquire(&both()).await);
    let again =
        granted(slow(&on, DELAY, (ALMOST, PAST), async |store| store.acquire(&both()).await).await);
    assert!(again.fresh && again.token > first.token, "{first:?}, {again:?}");
}

/// The end that the last renewal continued has passed, which is no matter to a request that renews nothing.
#[tokio::test]
async fn a_request_that_continues_nothing_ends_no_renewed_lease() {
    let on = OnClock::new().await;
    for (name, mode, other) in
        [("x", Mode::Exclusive, Mode::SHARED), ("s", Mode::SHARED, Mode::Exclusive)]
    {
        granted(on.store.acquire(&lease(name, mode)).await);
        is_renewed(&on.store, name, "a", mode).await;
        on.passes(ALMOST + PAST);
        let error = on.store.acquire(&lease(name, other)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        is_renewed(&on.store, name, "a", mode).await;
    }
}

#[tokio::test]
async fn a_renewal_that_raised_a_token_and_is_sent_again_ends_no_lease() {
    let on = OnClock::new().await;
    let store = connect(&on.set.nodes[0].address(), "0").await;
    let lease = lease("k", Mode::Exclusive);
    let token = granted(store.acquire(&lease).await).token.unwrap();
    let higher = FencingToken::new(token.get() + 10).unwrap();
    let entry = RenewEntry::extend(id("a"), lease.claims().clone(), Ttl::new(LONG).unwrap());
    let raising = RenewRequest::new(vec![entry.with_token(token).with_token_raised_to(higher)]);
    for _ in 0..2 {
        let outcome = renewed(&store, &raising).await;
        assert!(matches!(outcome, Ok(RenewOutcome::Held(_))), "{outcome:?}");
        on.passes(ALMOST + PAST);
    }
}
