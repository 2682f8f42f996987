//! The 16 defects of redlock by the numbers of `docs/migrating/redlock.md`, on real Redis servers where they
//! concern those. Those of a quorum's rules alone are in `redlock.rs` of `leasehold-quorum`.

use std::collections::HashSet;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use crate::fleet::{Fleet, behind_a_proxy, foreign, ms, quorum_url, secs};
use futures_util::future::join_all;
use leasehold::backoff::{Backoff as _, Exponential, Jitter};
use leasehold::{
    Effect, Error, ErrorKind, Event, Keepalive, Locker, LostReason, ManualClock, ReleaseOutcome,
    Ttl, Wait, WaitCause,
};
use leasehold_conformance::{Fault, Proxy};
use leasehold_testkit::{LONG, in_time, until};

#[tokio::test]
async fn redlock_01_a_failed_try_with_the_holding_token_keeps_the_lock_on_redis() {
    let fleet = Fleet::nodes(3).await;
    let guard = fleet.locks().await.lock("k").lease_id("mine").ttl(secs(60)).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    let same = fleet.locks().await;
    let again = same.lock("k").lease_id("mine").wait(Wait::No).await.unwrap();
    assert!(!again.is_fresh());
    drop(again.detach());
    fleet.servers[1..].iter().for_each(|server| server.kill());
    let error = same.lock("k").lease_id("mine").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    same.close(secs(60)).await.unwrap();
    for server in &fleet.servers[1..] {
        server.restart().await.unwrap();
    }
    assert_eq!(fleet.copies("k", &guard).await, 3);
    assert!(guard.is_held());
}

#[tokio::test]
async fn redlock_02_emptied_nodes_are_filled_again_on_redis() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").ttl(secs(60)).keepalive(Keepalive::Off).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    for server in &fleet.servers {
        server.ask(&["FLUSHALL"]).await.unwrap();
        server.restart().await.unwrap();
        assert_eq!(fleet.copies("k", &guard).await, 2);
        // The first request after a restart may find the connection cut.
        until(async || guard.renew().await.is_ok() && fleet.copies("k", &guard).await == 3).await;
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn redlock_03_extending_a_lost_lock_is_answered_by_one_exchange() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let guard = locks.lock("k").await.unwrap();
    guard.renew().await.unwrap();
    server.ask(&["DEL", "k"]).await.unwrap();
    let before = proxy.exchanges();
    assert_eq!(guard.renew().await.unwrap_err().lost_reason(), Some(&LostReason::Gone));
    assert_eq!(proxy.exchanges() - before, 1);
    assert_eq!(in_time(guard.lost()).await, LostReason::Gone);

    let fleet = Fleet::nodes(3).await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    for server in &fleet.servers {
        server.ask(&["DEL", "k"]).await.unwrap();
    }
    assert_eq!(in_time(guard.renew()).await.unwrap_err().lost_reason(), Some(&LostReason::Gone));
}

#[tokio::test]
async fn redlock_04_a_foreign_lock_on_a_minority_does_not_block_on_redis() {
    let fleet = Fleet::nodes(3).await;
    foreign(&fleet.servers[0], "k", "theirs").await;
    let locks = fleet.locks().await;
    // By the caller's own id, and by the lease.
    let guard = locks.lock("k").lease_id("mine").wait(Wait::No).await.unwrap();
    let lease = guard.detach();
    let guard = in_time(locks.acquire_or_renew(lease).into_future()).await.unwrap();
    assert!(!guard.is_fresh() && guard.is_held());
    assert_eq!(guard.release().await.unwrap().has_majority(), Some(true));
    let theirs = Some("theirs".to_owned());
    assert_eq!(fleet.values("k").await, [theirs, None, None]);
}

#[tokio::test]
async fn redlock_05_one_hung_or_refusing_node_costs_no_term_on_redis() {
    let fleet = Fleet::nodes(3).await;
    let urls = || fleet.servers.iter().map(|server| format!("{}&timeout=20s", server.store_url()));
    for hangs in [true, false] {
        // With the usual limit of a node, 500 ms, and with limits that show whether a lock waited for it.
        let usual = Locker::connect(&fleet.url_with("")).await.unwrap();
        let patient = Locker::connect(&quorum_url(urls(), "node_timeout=20s")).await.unwrap();
        if hangs {
            fleet.servers[0].pause()
        } else {
            fleet.servers[0].kill()
        }
        for (locks, key) in [(&usual, "a"), (&usual, "b"), (&patient, "c")] {
            let guard = locks.lock(key).ttl(secs(60)).wait(LONG).await.unwrap();
            let rest = guard.remaining().duration().unwrap();
            assert!(rest > secs(45), "{rest:?}");
            guard.release().await.unwrap();
        }
        if hangs {
            fleet.servers[0].resume();
        }
    }
}

#[tokio::test]
async fn redlock_06_servers_that_are_down_are_not_reported_as_held_on_redis() {
    for fleet in [Fleet::one().await, Fleet::nodes(3).await] {
        let locks = fleet.locks().await;
        fleet.servers.iter().for_each(|server| server.kill());
        let error = locks.try_lock("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        if fleet.servers.len() > 1 {
            let failed = error.nodes().iter().filter(|node| node.error.is_some()).count();
            assert!(failed >= 2, "{:?}", error.nodes());
        }
        // A waiter is told too, in the end.
        let error = locks.lock("k").wait(Wait::Attempts(3)).await.unwrap_err();
        let report = error.wait_report().unwrap();
        assert!(matches!(report.cause, WaitCause::Store(_)) && report.tries == 3, "{report}");
    }
}

#[test]
fn redlock_07_an_exponential_wait_stays_below_its_cap_whatever_the_retry() {
    let mut plain = Exponential::default().with_jitter(Jitter::None);
    for retry in (10..=200).chain([10_000, u32::MAX]) {
        assert_eq!(plain.next(retry), Some(secs(60)), "{retry}");
        assert!(Exponential::default().next(retry).unwrap() <= secs(60));
    }
}

#[test]
fn redlock_08_exponential_waits_that_begin_together_spread() {
    for retry in [0, 4, 50] {
        let herd: HashSet<_> = (0..100).map(|_| Exponential::default().next(retry)).collect();
        assert!(herd.len() > 90, "{}", herd.len());
    }
}

#[tokio::test]
async fn redlock_09_a_lost_answer_is_not_a_refusal_and_leaves_no_orphan_on_redis() {
    let (server, proxy, locks) = behind_a_proxy().await;
    for _ in 0..3 {
        proxy.once(Fault::CutAfter);
        let guard = locks.try_lock("k").await.unwrap().expect("it is ours");
        assert_eq!(server.text(&["GET", "k"]).await, Some(guard.lease().id.to_string()));
        guard.release().await.unwrap();
    }
    assert_eq!(server.number(&["EXISTS", "k"]).await, 0);

    let fleet = Fleet::nodes(3).await;
    let proxies =
        join_all(fleet.servers.iter().map(async |server| {
            Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap()
        }))
        .await;
    let urls = proxies.iter().map(|proxy| format!("redis://{}/?durable=1", proxy.address()));
    let locks = Locker::connect(&quorum_url(urls, "node_timeout=5s")).await.unwrap();
    proxies.iter().for_each(|proxy| proxy.once(Fault::CutAfter));
    // The term is longer than the test waits.
    match locks.try_lock("k").ttl(secs(60)).await {
        Ok(guard) => assert!(guard.expect("nobody else holds it").is_held()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    fleet.until_nowhere("k").await;
    locks.lock("k").wait(LONG).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn redlock_10_a_release_whose_caller_gave_up_is_completed() {
    for fleet in [Fleet::one().await, Fleet::nodes(3).await] {
        let locks = fleet.locks().await;
        // The term is longer than the test waits.
        let guard = locks.lock("k").ttl(secs(60)).await.unwrap();
        fleet.until_everywhere("k", &guard).await;
        // What was sent has no effect, so that it must be sent again.
        fleet.servers.iter().for_each(|server| server.pause());
        tokio::time::timeout(Duration::ZERO, guard.release()).await.unwrap_err();
        for server in &fleet.servers {
            server.restart().await.unwrap();
        }
        // A node that was not back when a majority released keeps its part until the term ends.
        let _next = fleet.locks().await.lock("k").wait(LONG).await.unwrap();
    }
}

#[tokio::test]
async fn redlock_11_a_term_below_a_millisecond_is_refused_before_anything_is_sent() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let guard = locks.lock("k").await.unwrap();
    let before = proxy.exchanges();
    for term in [Duration::ZERO, Duration::from_micros(999), ms(9)] {
        assert_eq!(Error::from(Ttl::new(term).unwrap_err()).kind(), ErrorKind::InvalidInput);
        for asked in [
            locks.lock("k").ttl(term),
            locks.lock("free").lease_id("mine").ttl(term),
            locks.acquire_or_renew(guard.lease().clone()).ttl(term),
        ] {
            let error = asked.await.unwrap_err();
            assert_eq!(
                (error.kind(), error.effect()),
                (ErrorKind::InvalidInput, Effect::NotApplied)
            );
        }
    }
    assert_eq!(proxy.exchanges(), before);
    assert!(guard.verify().await.unwrap());
    assert!(server.number(&["PTTL", "k"]).await > 0);
    // A lease without end is a value of its own, and a quorum refuses it.
    let forever = locks.lock("forever").ttl(Ttl::NEVER).await.unwrap();
    assert_eq!(server.number(&["PTTL", "forever"]).await, -1);
    forever.release().await.unwrap();
    let quorum = Fleet::nodes(3).await.locks().await;
    let error = quorum.lock("k").ttl(Ttl::NEVER).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::NotApplied));
}

#[tokio::test]
async fn redlock_12_a_holder_is_notified_of_each_failure_and_of_the_end() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.lock("k").ttl(secs(6)).await.unwrap();
    let mut events = guard.events();
    fleet.servers[0].kill();
    let work = guard.run(std::future::pending::<()>());
    assert_eq!(in_time(work).await.unwrap_err().lost_reason(), Some(&LostReason::StoreUnreachable));
    let mut told = Vec::new();
    while let Some(event) = in_time(events.next()).await {
        told.push(event);
    }
    let failed =
        |event: &&Event| matches!(event, Event::Failed(e) if e.kind() == ErrorKind::Unavailable);
    assert!(told.iter().filter(failed).count() >= 1, "{told:?}");
    let [.., Event::Lost(LostReason::StoreUnreachable), Event::Stopped] = &told[..] else {
        panic!("{told:?}")
    };
}

#[tokio::test]
async fn redlock_13_tokens_grow_from_grant_to_grant_on_redis() {
    // On servers whose clocks stand still no token grows by itself.
    let fleet = Fleet::on_a_clock(3).await;
    let alone = Locker::connect(&fleet.servers[0].url()).await.unwrap();
    let fenced = Locker::connect(&fleet.url_with("node_timeout=5s&fenced=1")).await.unwrap();
    for (locks, key, nodes) in [(alone, "alone", 1), (fenced, "fenced", 3)] {
        let mut last = None;
        for round in 0..4 {
            let server = &fleet.servers[round % nodes];
            // Another node each time does not receive the token.
            if nodes > 1 && round > 0 {
                server.kill();
            }
            let guard = locks.lock(key).fenced().wait(LONG).await.unwrap();
            assert!(guard.token() > last, "{key} {round}");
            last = guard.token();
            // Whatever happens to the key and the server.
            if round == 0 {
                until(async || fleet.copies(key, &guard).await == nodes).await;
                server.ask(&["DEL", key]).await.unwrap();
            }
            guard.release().await.unwrap();
            // What a node does not receive before it goes down would stay, because no term ends.
            if round == 0 {
                fleet.until_nowhere(key).await;
            }
            server.restart().await.unwrap();
        }
    }
}

#[tokio::test]
async fn redlock_14_a_suspended_holder_no_longer_holds_when_it_wakes() {
    let fleet = Fleet::one().await;
    // Continues while the machine sleeps, like the clock outside tests; the server's continues too.
    let clock = Arc::new(ManualClock::new());
    let locks = Locker::builder(fleet.servers[0].store().await).clock(clock.clone()).build();
    let guard = locks.lock("k").ttl(secs(60)).await.unwrap();
    clock.advance(secs(61));
    assert!(!guard.is_held() && guard.ensure_held().is_err());
    let worked = guard.run(async { panic!("work of a holder that is none") }).await;
    assert_eq!(worked.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn redlock_15_zero_nodes_and_one_node_twice_are_refused_and_an_even_number_is_reported() {
    let fleet = Fleet::nodes(2).await;
    let one = fleet.servers[0].url();
    let kind = async |url: String| Locker::connect(&url).await.unwrap_err().kind();
    assert_eq!(kind("quorum:?node_timeout=1s".to_owned()).await, ErrorKind::InvalidInput);
    let twice = quorum_url([one.clone(), one.clone()], "");
    assert_eq!(kind(twice).await, ErrorKind::InvalidInput);
    let by_another_name = quorum_url([one.clone(), format!("{one}0")], "");
    assert_eq!(kind(by_another_name).await, ErrorKind::Incompatible);
    let locks = fleet.locks().await;
    let health = locks.check().await.unwrap();
    assert!(!health.hazards.is_empty());
    fleet.servers[1].kill();
    let error = locks.try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn redlock_16_a_release_reports_whether_the_lock_was_still_held_on_redis() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    for (emptied, released) in [(0, true), (1, true), (3, false)] {
        // The term is longer than the test waits.
        let guard = locks.lock("k").ttl(secs(60)).await.unwrap();
        fleet.until_everywhere("k", &guard).await;
        for server in &fleet.servers[..emptied] {
            server.ask(&["DEL", "k"]).await.unwrap();
        }
        let report = guard.release().await.unwrap();
        let was_held = matches!(report.outcome, ReleaseOutcome::Released);
        assert_eq!(
            (was_held, report.has_majority(), report.nodes_total()),
            (released, Some(released), 3)
        );
        assert!(report.nodes_released() <= 3 - emptied, "{report:?}");
        fleet.until_nowhere("k").await;
    }
    // A lease that overran does not free its successor's key.
    let clocked = Fleet::on_a_clock(1).await;
    let overrun = clocked.locks().await.lock("k").ttl(secs(10)).await.unwrap();
    clocked.advance(secs(10));
    let next = clocked.locks().await.lock("k").await.unwrap();
    assert!(matches!(overrun.release().await.unwrap().outcome, ReleaseOutcome::Expired));
    assert!(next.verify().await.unwrap());
}
