//! Requests about one key each that are sent together.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    AcquireRequest, Effect, ErrorKind, FencingToken, LostReason, Mode, ReleaseEntry,
    ReleaseOutcome, ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_mongodb::mongodb::ClientSession;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, is_renewed, key, refused};
use leasehold_testkit::{LONG, in_time};

use crate::late::{ALMOST, PAST, TERM, end, slow};
use crate::on_clock::OnClock;
use crate::race::Setup;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n:03}")).collect()
}

fn releases(names: &[String], lease: &str) -> ReleaseRequest {
    let entry = |name: &String| ReleaseEntry::new(id(lease), [key(name)]);
    ReleaseRequest::new(names.iter().map(entry).collect())
}

fn renewals(leases: &[AcquireRequest]) -> RenewRequest {
    let entry = |lease: &AcquireRequest| {
        let term = Ttl::new(LONG).unwrap();
        RenewEntry::extend(lease.id().clone(), lease.claims().clone(), term)
    };
    RenewRequest::new(leases.iter().map(entry).collect())
}

/// The commands about locks that the server has had.
async fn commands(set: &ReplicaSet) -> [i64; 3] {
    let status = set.nodes[0].command("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    ["findAndModify", "update", "find"]
        .map(|name| commands.get_document(name).unwrap().get_i64("total").unwrap())
}

/// A replica set of one with a store whose operations take at most so long.
async fn start(timeout: &str) -> (ReplicaSet, MongodbStore) {
    let set = ReplicaSet::start(1).await.unwrap();
    let config = MongodbConfig::parse(&format!("{}&timeout={timeout}", set.url())).unwrap();
    let store = config.connect().await.unwrap();
    store.prepare().await.unwrap();
    (set, store)
}

async fn acquire_all(store: &MongodbStore, names: &[String], lease: &str, mode: Mode) -> Vec<u64> {
    let requests: Vec<_> = names.iter().map(|name| acquire(name, lease, mode)).collect();
    let replies = join_all(requests.iter().map(|request| store.acquire(request))).await;
    let token = |reply| {
        let granted = granted(reply);
        assert!(granted.fresh, "{granted:?}");
        granted.token.unwrap().get()
    };
    replies.into_iter().map(token).collect()
}

#[tokio::test]
async fn what_arrives_together_is_sent_together() {
    let (set, store) = start("30s").await;
    let names = names(500);
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let before = commands(&set).await;
        let tokens = acquire_all(&store, &names, "a", mode).await;
        // The first is sent alone; the others meanwhile become a few batches.
        let acquires = commands(&set).await;
        let sent: i64 = acquires.iter().zip(before).map(|(after, before)| after - before).sum();
        assert!(sent <= 40, "{sent} commands for 500 acquires");

        let again: Vec<_> = names.iter().map(|name| acquire(name, "b", Mode::Exclusive)).collect();
        for reply in join_all(again.iter().map(|request| store.acquire(request))).await {
            let refused = refused(reply);
            assert!(format!("{refused:?}").contains("Held(Some("), "{refused:?}");
        }

        let before = commands(&set).await;
        let leases: Vec<_> = names.iter().map(|name| acquire(name, "a", mode)).collect();
        let renewed = store.renew(&renewals(&leases)).await.unwrap().leases;
        assert!(renewed.iter().all(|one| matches!(one, RenewOutcome::Held(_))), "{renewed:?}");
        let released = store.release(&releases(&names, "a")).await.unwrap().leases;
        assert!(released.iter().all(|one| matches!(one, ReleaseOutcome::Released)));
        let after = commands(&set).await;
        assert_eq!(after, [before[0], before[1] + 2, before[2] + 2]);

        let released = store.release(&releases(&names, "a")).await.unwrap().leases;
        assert!(released.iter().all(|one| matches!(one, ReleaseOutcome::NotHeld)));
        let next = acquire_all(&store, &names, "c", mode).await;
        assert!(tokens.iter().zip(&next).all(|(token, next)| token < next));
        store.release(&releases(&names, "c")).await.unwrap();
    }
}

#[tokio::test]
async fn a_lone_request_about_an_exclusive_lease_is_one_command() {
    let (set, store) = start("30s").await;
    let mut before = commands(&set).await[0];
    // The first time, there is no document.
    for lease in ["a", "b"] {
        granted(store.acquire(&acquire("k", lease, Mode::Exclusive)).await);
        is_renewed(&store, "k", lease, Mode::Exclusive).await;
        let released = store.release(&releases(&["k".to_owned()], lease)).await.unwrap().leases;
        assert!(matches!(released[..], [ReleaseOutcome::Released]), "{released:?}");
        let after = commands(&set).await[0];
        assert_eq!(after - before, 3);
        before = after;
    }
}

/// A transaction of another program that has written an unrelated field of this key's document.
async fn hold(set: &ReplicaSet, name: &str) -> ClientSession {
    let client = set.nodes[0].client().unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let locks = client.database(DATABASE).collection::<Document>("locks");
    let update = doc! { "$set": { "unrelated": 1 } };
    let held = locks.update_one(doc! { "resource": name }, update).session(&mut session);
    assert_eq!(held.await.unwrap().matched_count, 1);
    session
}

/// The server logs each update that fails, with all of it.
#[tokio::test]
async fn a_lone_refusal_is_one_command_and_leaves_nothing_in_the_log() {
    let (set, store) = start("30s").await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let before = commands(&set).await[0];
    for _ in 0..10 {
        refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    }
    assert_eq!(commands(&set).await[0] - before, 10);
    let log = set.nodes[0].log();
    let logged: Vec<_> = log.lines().filter(|line| line.contains("executor error")).collect();
    assert!(logged.is_empty(), "{logged:?}");
}

/// The batch is given up after it has ended the leases of the other keys.
#[tokio::test]
async fn a_document_that_another_transaction_holds_stops_no_other_key() {
    let (set, store) = start("6s").await;
    let names = names(20);
    acquire_all(&store, &names, "a", Mode::Exclusive).await;
    let mut session = hold(&set, &names[19]).await;

    let leases: Vec<_> = names.iter().map(|name| acquire(name, "a", Mode::Exclusive)).collect();
    let renewed = in_time(store.renew(&renewals(&leases))).await.unwrap().leases;
    let (last, others) = renewed.split_last().unwrap();
    assert!(others.iter().all(|one| matches!(one, RenewOutcome::Held(_))), "{others:?}");
    assert!(matches!(last, RenewOutcome::Failed(_)), "{last:?}");

    let released = in_time(store.release(&releases(&names, "a"))).await.unwrap().leases;
    let (last, others) = released.split_last().unwrap();
    assert!(others.iter().all(|one| matches!(one, ReleaseOutcome::Released)), "{others:?}");
    let ReleaseOutcome::Failed(error) = last else { panic!("{last:?}") };
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    session.abort_transaction().await.unwrap();
}

/// The batch is given up after it has granted the other keys, which are asked for again.
#[tokio::test]
async fn acquires_beside_a_document_that_another_transaction_holds_are_fresh() {
    let (set, store) = start("10s").await;
    let names = names(20);
    let (last, others) = names.split_last().unwrap();
    acquire_all(&store, &names[19..], "before", Mode::Exclusive).await;
    store.release(&releases(&names[19..], "before")).await.unwrap();
    let mut session = hold(&set, last).await;
    let held = acquire(last, "a", Mode::Exclusive);
    let before = commands(&set).await;
    let granting = async {
        let tokens = acquire_all(&store, others, "a", Mode::Exclusive).await;
        session.abort_transaction().await.unwrap();
        tokens
    };
    let (tokens, held) = in_time(async { tokio::join!(granting, store.acquire(&held)) }).await;
    assert!(granted(held).fresh);
    // A batch that was given up, and a look at each of its requests.
    let sent = commands(&set).await;
    assert!(sent[1] > before[1] && sent[2] > before[2] + 2, "{before:?} {sent:?}");
    for (name, token) in others.iter().zip(tokens) {
        let again = granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
        assert!(!again.fresh && again.token.unwrap().get() == token, "{again:?}");
    }
}

/// The step of the clock is longer than the batch may take, and ends it.
#[tokio::test]
async fn what_a_batch_granted_before_the_clock_was_set_forward_is_fresh() {
    let on = OnClock::new().await;
    let names = names(3);
    acquire_all(&on.store, &names, "before", Mode::Exclusive).await;
    on.store.release(&releases(&names, "before")).await.unwrap();
    let session = on.hold(&names[2]).await;
    let passing = async {
        on.until_it_waits().await;
        on.passes(8_000);
        end(session, false).await;
    };
    in_time(async { tokio::join!(acquire_all(&on.store, &names, "a", Mode::Exclusive), passing) })
        .await;
}

#[tokio::test]
async fn renewals_whose_batch_waited_past_their_end_are_undone() {
    let on = OnClock::new().await;
    let leases = ["k", "l"].map(|name| acquire_for(name, "a", Mode::Exclusive, TERM));
    for lease in &leases {
        granted(on.store.acquire(lease).await);
    }
    let renewals = renewals(&leases);
    let renewed = on.late("k", true, on.store.renew(&renewals)).await.unwrap().leases;
    for outcome in renewed {
        assert!(matches!(outcome, RenewOutcome::Lost(Some(LostReason::Expired))), "{outcome:?}");
    }
    for name in ["k", "l"] {
        granted(on.store.acquire(&acquire(name, "b", Mode::Exclusive)).await);
    }
}

/// The end is nearer than the wait was long, by the clock of a client.
#[tokio::test]
async fn renewals_whose_batch_waited_but_not_past_their_end_hold() {
    let on = OnClock::new().await;
    let term = TERM + Duration::from_millis(PAST);
    let leases = ["k", "l"].map(|name| acquire_for(name, "a", Mode::SHARED, term));
    for lease in &leases {
        granted(on.store.acquire(lease).await);
    }
    let renewals = renewals(&leases);
    let renewed = on.late("k", true, on.store.renew(&renewals)).await.unwrap().leases;
    assert!(renewed.iter().all(|one| matches!(one, RenewOutcome::Held(_))), "{renewed:?}");
    on.passes(ALMOST * 2);
    is_renewed(&on.store, "k", "a", Mode::SHARED).await;
}

#[tokio::test]
async fn renewals_that_their_batch_sees_only_after_their_end_hold() {
    let on = OnClock::new().await;
    let leases = ["k", "l"].map(|name| acquire_for(name, "a", Mode::Exclusive, TERM));
    for lease in &leases {
        granted(on.store.acquire(lease).await);
    }
    let renewals = renewals(&leases);
    let renewing = async |store: &MongodbStore| store.renew(&renewals).await;
    // The update takes twice as long, and both commands four times: the end passes after it, and not before the request.
    let delay = Duration::from_millis(400);
    let renewed = slow(&on, delay, (ALMOST - 1_300, 1_400), renewing).await.unwrap().leases;
    assert!(renewed.iter().all(|one| matches!(one, RenewOutcome::Held(_))), "{renewed:?}");
    for name in ["k", "l"] {
        is_renewed(&on.store, name, "a", Mode::Exclusive).await;
    }
}

/// The first of three is sent alone, and the others together.
#[tokio::test]
async fn acquires_whose_batch_confirms_past_their_end_are_new_grants() {
    let on = OnClock::new().await;
    let leases = ["k", "l"].map(|name| acquire_for(name, "a", Mode::SHARED, TERM));
    let mut before = Vec::new();
    for lease in &leases {
        before.push(granted(on.store.acquire(lease).await).token);
    }
    let first = acquire("j", "a", Mode::Exclusive);
    let all = [&first, &leases[0], &leases[1]].map(|lease| on.store.acquire(lease));
    let after: Vec<_> =
        on.late("k", false, join_all(all)).await.into_iter().map(granted).skip(1).collect();
    assert!(after.iter().all(|one| one.fresh), "{after:?}");
    assert!(before.iter().zip(&after).all(|(before, after)| *before < after.token), "{after:?}");
}

/// Another client's garbage collection may delete the document of a key that was just released.
#[tokio::test]
async fn a_release_whose_document_is_gone_is_not_reported_as_not_held() {
    let setup = Setup::new().await;
    for name in ["k", "l"] {
        granted(setup.proxied.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
    let collected = async {
        let locks = setup.locks();
        assert_eq!(locks.delete_one(doc! { "resource": "k" }).await.unwrap().deleted_count, 1);
    };
    let releases = releases(&["k".to_owned(), "l".to_owned()], "a");
    let released = setup.between(setup.proxied.release(&releases), collected).await;
    let [gone, other] = &released.unwrap().leases[..] else { panic!() };
    assert!(matches!(gone, ReleaseOutcome::Failed(e) if e.effect() == Effect::Unknown), "{gone:?}");
    assert!(matches!(other, ReleaseOutcome::Released), "{other:?}");
}

/// Another primary that takes over may have the document as it was before.
#[tokio::test]
async fn a_release_whose_lease_is_still_there_is_sent_again() {
    let setup = Setup::new().await;
    let names = ["k", "l", "m", "n"].map(str::to_owned);
    let tokens = acquire_all(&setup.proxied, &names, "a", Mode::Exclusive).await;
    let of = |name| ReleaseEntry::new(id("a"), [key(name)]);
    let keeping = ReleaseRequest::new(vec![of("m").with_keep(LONG)]);
    setup.direct.release(&keeping).await.unwrap();
    let locks = setup.locks();
    let before = locks.find_one(doc! { "resource": "k" }).await.unwrap().unwrap();
    let rolled_back = async {
        let of_key = doc! { "resource": "k" };
        assert_eq!(locks.replace_one(of_key, &before).await.unwrap().modified_count, 1);
    };
    let of_another = of("n").with_token(FencingToken::new(tokens[3] + 1).unwrap());
    let releases = ReleaseRequest::new(vec![of("k"), of("l"), of("m"), of_another]);
    let released = setup.between(setup.proxied.release(&releases), rolled_back).await;
    let [there, ended, kept, other] = &released.unwrap().leases[..] else { panic!() };
    for outcome in [there, ended] {
        assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
    }
    granted(setup.direct.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    for outcome in [kept, other] {
        assert!(matches!(outcome, ReleaseOutcome::NotHeld), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_lease_that_was_evicted_before_the_batch_saw_it_is_lost() {
    let setup = Setup::new().await;
    let pair = ["k", "l"].map(|name| acquire(name, "a", Mode::Exclusive));
    for lease in &pair {
        granted(setup.direct.acquire(lease).await);
    }
    let renewals = renewals(&pair);
    let ended = async {
        let evicting = leasehold_testkit::requests::evict("k", "a");
        assert_eq!(setup.direct.evict(&evicting).await.unwrap().removed.len(), 1);
    };
    let renewed = setup.between(setup.proxied.renew(&renewals), ended).await.unwrap().leases;
    let [lost, held] = &renewed[..] else { panic!("{renewed:?}") };
    assert!(matches!(lost, RenewOutcome::Lost(Some(LostReason::Evicted(_)))), "{lost:?}");
    assert!(matches!(held, RenewOutcome::Held(left) if format!("{left:?}").contains("For")));
}

/// What a release leaves in a document that is used once.
#[tokio::test]
async fn a_release_leaves_few_bytes() {
    let (set, store) = start("30s").await;
    let names = names(2);
    acquire_all(&store, &names, "a", Mode::Exclusive).await;
    store.release(&releases(&names, "a")).await.unwrap();
    for _ in 0..20 {
        acquire_all(&store, &names[..1], "a", Mode::Exclusive).await;
        let both = ReleaseRequest::new(vec![
            ReleaseEntry::new(id("a"), [key(&names[0])]),
            ReleaseEntry::new(id("none"), [key(&names[1])]),
        ]);
        store.release(&both).await.unwrap();
    }
    let locks = set.nodes[0].client().unwrap().database(DATABASE).collection::<Document>("locks");
    let traces = async |name: &String| {
        let found = locks.find_one(doc! { "resource": name }).await.unwrap().unwrap();
        found.get_array("released").unwrap().len()
    };
    assert_eq!((traces(&names[0]).await, traces(&names[1]).await), (8, 1));
}
