//! What other clients do between the steps of a request, and while a change stream is lost.

use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    AcquireRequest, Claim, Claims, Effect, ErrorKind, EvictRequest, EvictTarget, Filter,
    ListRequest, LostReason, Mode, Reason, RenewOutcome, Store as _, Ttl,
};
use leasehold_mongodb::mongodb::Collection;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{
    acquire, evict, failed, granted, id, is_renewed, key, refused, release, renew, renewed,
};
use leasehold_testkit::{LONG, in_time, until};

/// A store, and another one behind a proxy.
pub(crate) struct Setup {
    set: ReplicaSet,
    pub(crate) direct: MongodbStore,
    proxy: Proxy,
    pub(crate) proxied: MongodbStore,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        let set = ReplicaSet::start(1).await.unwrap();
        let direct = MongodbStore::connect(&set.url()).await.unwrap();
        direct.prepare().await.unwrap();
        let proxy = Proxy::before(set.nodes[0].address().parse().unwrap()).await.unwrap();
        proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
        let place = proxy.address();
        let options = "directConnection=true&serverMonitoringMode=poll";
        let url = format!("mongodb://{place}/{DATABASE}?{options}");
        let proxied = MongodbStore::connect(&url).await.unwrap();
        // It opens its connection now.
        proxied.list(&ListRequest::new(Filter::default())).await.unwrap();
        Self { set, direct, proxy, proxied }
    }

    pub(crate) fn locks(&self) -> Collection<Document> {
        self.set.nodes[0].client().unwrap().database(DATABASE).collection("locks")
    }

    /// Sends a request by the slow store, and has the other act after it has read and before it writes.
    pub(crate) async fn between<T>(
        &self,
        request: impl Future<Output = T>,
        act: impl Future<Output = ()>,
    ) -> T {
        let before = self.proxy.exchanges();
        self.proxy.set(Fault::Delay(Duration::from_millis(300)));
        let acting = async {
            // The read and the write, which arrives later.
            until(async || self.proxy.exchanges() >= before + 2).await;
            act.await;
            self.proxy.set(Fault::None);
        };
        in_time(async { tokio::join!(request, acting) }).await.0
    }
}

fn both() -> AcquireRequest {
    let pair = ["k", "l"].map(|name| Claim { key: key(name), mode: Mode::Exclusive });
    AcquireRequest::new(id("a"), Claims::new(pair).unwrap(), Ttl::new(LONG).unwrap())
}

#[tokio::test]
async fn an_eviction_loses_nothing_that_was_granted_after_it_read() {
    let setup = Setup::new().await;
    granted(setup.direct.acquire(&acquire("k", "a", Mode::SHARED)).await);
    let other = async {
        granted(setup.direct.acquire(&acquire("k", "b", Mode::SHARED)).await);
    };
    let evicting = evict("k", "a");
    let evicted = setup.between(setup.proxied.evict(&evicting), other).await;
    assert_eq!(evicted.unwrap().removed.len(), 1);
    is_renewed(&setup.direct, "k", "b", Mode::SHARED).await;
}

#[tokio::test]
async fn of_several_keys_none_is_taken_if_another_took_one_meanwhile() {
    let setup = Setup::new().await;
    let both = both();
    let other = async {
        granted(setup.direct.acquire(&acquire("l", "b", Mode::Exclusive)).await);
    };
    let acquired = setup.between(setup.proxied.acquire(&both), other).await;
    assert_eq!(refused(acquired).key, key("l"));
    is_renewed(&setup.direct, "l", "b", Mode::Exclusive).await;
    let listed = setup.direct.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(listed.records.len(), 1, "{listed:?}");
}

/// It has an end itself, and no grant to another removes it before.
#[tokio::test]
async fn the_reason_of_an_eviction_outlives_the_next_grant() {
    let setup = Setup::new().await;
    granted(setup.direct.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let target = EvictTarget::new(key("k"), Some(id("a")));
    let reason = Reason::new("maintenance").unwrap();
    let evicting = EvictRequest::exactly(vec![target], Some(reason.clone()));
    assert_eq!(setup.direct.evict(&evicting).await.unwrap().removed.len(), 1);
    granted(setup.direct.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let expected = LostReason::Evicted(Some(reason));
    let lost = renewed(&setup.direct, &renewal).await.unwrap();
    assert!(matches!(&lost, RenewOutcome::Lost(Some(why)) if *why == expected), "{lost:?}");
    // The lease's own grant does.
    setup.direct.release(&release("k", "b")).await.unwrap();
    granted(setup.direct.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    setup.direct.release(&release("k", "a")).await.unwrap();
    let lost = renewed(&setup.direct, &renewal).await.unwrap();
    assert!(matches!(lost, RenewOutcome::Lost(Some(LostReason::Gone))), "{lost:?}");
}

/// Nobody knows what happened meanwhile.
#[tokio::test]
async fn a_waiter_whose_stream_was_lost_is_woken() {
    let setup = Setup::new().await;
    granted(setup.direct.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let mut wakeups = setup.proxied.subscribe(&[key("k")]).await.unwrap();
    setup.proxy.cut();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}

#[tokio::test]
async fn several_keys_are_not_held_before_their_transaction_is_committed() {
    let setup = Setup::new().await;
    let before = setup.proxy.exchanges();
    setup.proxy.set(Fault::Delay(Duration::from_millis(300)));
    let cutting = async {
        // The read and the write; the commit is on its way and does not arrive.
        until(async || setup.proxy.exchanges() >= before + 3).await;
        setup.proxy.set(Fault::Refuse);
        setup.proxy.cut();
    };
    let both = both();
    let acquiring = setup.proxied.acquire(&both);
    let (acquired, ()) = in_time(async { tokio::join!(acquiring, cutting) }).await;
    failed(acquired, ErrorKind::Unavailable, Effect::Unknown, "");
    let listed = setup.direct.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert!(listed.records.is_empty(), "{listed:?}");
}

#[tokio::test]
async fn a_document_that_another_transaction_holds_is_not_tried_without_a_pause() {
    let set = ReplicaSet::start(1).await.unwrap();
    let config = MongodbConfig::parse(&format!("{}&timeout=4s", set.url())).unwrap();
    let store = config.connect().await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("l", "b", Mode::Exclusive)).await);
    store.release(&release("l", "b")).await.unwrap();
    let client = set.nodes[0].client().unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let held = client.database(DATABASE).collection::<Document>("locks");
    let update = held.update_one(doc! { "resource": "l" }, doc! { "$set": { "unrelated": 1 } });
    assert_eq!(update.session(&mut session).await.unwrap().matched_count, 1);

    let updates = async || {
        let status = set.nodes[0].command("admin", doc! { "serverStatus": 1 }).await.unwrap();
        let metrics = status.get_document("metrics").unwrap().get_document("commands").unwrap();
        metrics.get_document("update").unwrap().get_i64("total").unwrap()
    };
    let before = updates().await;
    let refused = store.acquire(&both()).await;
    failed(refused, ErrorKind::Unavailable, Effect::NotApplied, "again and again");
    let sent = updates().await - before;
    assert!((2..200).contains(&sent), "{sent} tries in four seconds");
    session.abort_transaction().await.unwrap();
    granted(store.acquire(&both()).await);
}
