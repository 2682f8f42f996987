//! Servers that end, connections that are cut, and servers that hang.

use std::time::Duration;

use leasehold_conformance::Fault;
use leasehold_conformance::history::check;
use leasehold_core::{Claims, Effect, ErrorKind, Mode, Store};

use super::{SqlTestServer, behind_a_proxy, open_behind, warm};
use crate::contender::Habit;
use crate::crowd::{Crowd, Tally};
use crate::requests::{acquire, granted, key, release};
use crate::{in_time, stalls};

#[macro_export]
macro_rules! sql_faults {
    ($server:ty) => {
        $crate::sql_tests!($server, faults, [
            a_connection_cut_before_or_after_the_commit_leaves_one_grant,
            an_acquire_that_is_late_is_not_passed_by_its_release,
        ], on two threads [
            killing_the_server_under_load_lets_no_second_holder_in,
        ]);
    };
}

const CLIENTS: u64 = 16;
const TERM: Duration = Duration::from_secs(2);

/// Contends on two keys while the server is killed again and again.
pub async fn killing_the_server_under_load_lets_no_second_holder_in<S: SqlTestServer>() {
    let (server, _) = S::with_store(&[]).await;
    let url = server.url("timeout=1s&connections=2");
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let name = if client % 4 == 0 { "b" } else { "a" };
        let mode = if client % 4 == 1 { Mode::SHARED } else { Mode::Exclusive };
        let habit = Habit { claims: Claims::one(key(name), mode), term: TERM, hold: 20, rest: 10 };
        clients.push((S::open(&url).await.unwrap(), habit));
    }
    let crowd = Crowd::start(clients);
    for _ in 0..6 {
        crowd.continues(10).await;
        server.restart().await.unwrap();
    }
    crowd.continues(10).await;
    let (history, _stores) = crowd.stop().await;
    let found = check(&history);
    assert!(found.is_empty(), "{found:?}");
    let tally = Tally::of(&history);
    println!("{tally}");
    // Without contention and without faults it would prove nothing.
    assert!(tally.kept >= 10 && tally.refused >= 20 && tally.unanswered >= 10);
}

pub async fn a_connection_cut_before_or_after_the_commit_leaves_one_grant<S: SqlTestServer>() {
    let (_server, proxy) = behind_a_proxy::<S>().await;
    for (n, mode) in [Mode::Exclusive, Mode::SHARED].into_iter().enumerate() {
        for (m, fault) in
            [Fault::CutBefore, Fault::CutAfter, Fault::SwallowAnswers].into_iter().enumerate()
        {
            let store = open_behind::<S>(&proxy, "timeout=4s").await;
            let name = format!("k{n}{m}");
            // Both the connection for batches and another one are there.
            warm(&store, &[format!("{name} warm")]).await;
            granted(store.acquire(&acquire(&name, "warm", Mode::SHARED)).await);
            store.release(&release(&name, "warm")).await.unwrap();
            proxy.once(fault);
            let error = in_time(store.acquire(&acquire(&name, "a", mode))).await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
            // The same request, sent again, learns what became of it.
            let again = granted(in_time(store.acquire(&acquire(&name, "a", mode))).await);
            assert_eq!(again.fresh, fault == Fault::CutBefore, "{fault:?}");
        }
    }
}

pub async fn an_acquire_that_is_late_is_not_passed_by_its_release<S: SqlTestServer>() {
    let (_server, proxy) = behind_a_proxy::<S>().await;
    let store = open_behind::<S>(&proxy, "timeout=6s").await;
    stalls::an_acquire_that_is_late_is_not_passed_by_its_release(&store, &proxy).await;
}
