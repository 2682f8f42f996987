//! Wake-ups, and what waiters cost others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};
use leasehold_core::{Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest, Store as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, key, only, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, SECOND, in_time, until};

/// How many listeners the server knows.
async fn listeners(server: &Server) -> i64 {
    server.rows("SELECT count(*) FROM leasehold.waiters").await[0].get(0)
}

#[tokio::test]
async fn a_release_wakes_who_listens_in_this_process_and_in_others() {
    let server = Server::start(&[]).await.unwrap();
    let (store, other) = (server.store().await, server.store().await);
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut here = store.subscribe(&[key("k"), key("l")]).await.unwrap();
    let mut there = other.subscribe(&[key("k")]).await.unwrap();
    let mut elsewhere = other.subscribe(&[key("l")]).await.unwrap();
    assert_eq!(listeners(&server).await, 4);
    store.release(&release("k", "holder")).await.unwrap();
    assert_eq!(in_time(here.next()).await, key("k"));
    assert_eq!(in_time(there.next()).await, key("k"));
    assert_eq!(elsewhere.next().now_or_never(), None);
    drop((here, there, elsewhere));
    until(async || listeners(&server).await == 0).await;
}

#[tokio::test]
async fn waiting_processes_leave_few_texts_in_the_servers_statistics() {
    let server = Server::start(&["shared_preload_libraries=pg_stat_statements"]).await.unwrap();
    server.run("CREATE EXTENSION pg_stat_statements").await;
    server.store().await;
    let mut wakeups = Vec::new();
    for _ in 0..40 {
        let store = PostgresStore::connect(&server.url()).await.unwrap();
        wakeups.push((store.subscribe(&[key("k")]).await.unwrap(), store));
    }
    let texts =
        server.rows("SELECT FROM pg_stat_statements WHERE query LIKE 'LISTEN%'").await.len();
    assert!((1..=16).contains(&texts), "{texts} texts");
    // Those who share a channel are all woken.
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    store.release(&release("k", "holder")).await.unwrap();
    for (wakeups, _) in &mut wakeups {
        assert_eq!(in_time(wakeups.next()).await, key("k"));
    }
}

#[tokio::test]
async fn waiters_of_killed_processes_are_forgotten_and_no_purge_reads_the_others() {
    let (server, store) = Server::with_store(&["fsync=off"]).await;
    let add = "
        INSERT INTO leasehold.waiters SELECT 'gone' || n, 'leasehold_x', leasehold.now_us() - 1 FROM generate_series(1, 50) AS n;
        INSERT INTO leasehold.waiters
        SELECT 'live' || n, 'leasehold_y', leasehold.now_us() + 60000000 FROM generate_series(1, 20000) AS n";
    server.run(add).await;
    let control = server.connect().await.unwrap();
    control.batch_execute("BEGIN; SELECT leasehold.purge(NULL, '{}', '{}', '{}')").await.unwrap();
    let text = "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'waiters'";
    let read: i64 = control.query(text, &[]).await.unwrap()[0].get(0);
    assert!(read < 1_000, "{read} rows");
    control.batch_execute("ROLLBACK").await.unwrap();
    // The next waiter, for any key, removes them.
    let _wakeups = store.subscribe(&[key("k")]).await.unwrap();
    assert_eq!(listeners(&server).await, 20_001);
}

/// The commit of a transaction that notifies fails when the queue is full, and what it did with it.
#[tokio::test]
async fn a_full_queue_of_notifications_fails_no_release() {
    let (server, store) = Server::with_store(&[]).await;
    // It takes 8 GiB to fill one: here, an empty one is full.
    let full = "DO $$ BEGIN
        EXECUTE replace(pg_get_functiondef('leasehold.wake(text[])'::regprocedure), '() > 0.9', '() >= 0');
    END $$";
    server.run(full).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    let released = store.release(&release("k", "a")).await.unwrap();
    assert!(matches!(only(released.leases), ReleaseOutcome::Released));
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    // With room in the queue again, the next release wakes, and is the first that did.
    server.run(&full.replace("'() > 0.9', '() >= 0'", "'() >= 0', '() > 0.9'")).await;
    assert_eq!(wakeups.next().now_or_never(), None);
    store.release(&release("k", "b")).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}

#[tokio::test]
async fn a_release_of_many_together_wakes_who_listens() {
    let (_server, store) = Server::with_store(&[]).await;
    let names: Vec<_> = (0..20).map(|n| format!("k{n}")).collect();
    for name in &names {
        granted(store.acquire(&acquire(name, "holder", Mode::Exclusive)).await);
    }
    let mut wakeups = store.subscribe(&[key("k7")]).await.unwrap();
    let ends = names.iter().map(|name| ReleaseEntry::new(id("holder"), [key(name)])).collect();
    store.release(&ReleaseRequest::new(ends)).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k7"));
}

/// Transactions that notify commit one after the other; here each commit takes 100 ms.
#[tokio::test]
async fn those_who_wake_or_begin_to_listen_at_the_same_time_log_no_error() {
    let server = Server::start(&["fsync=on", "commit_delay=100000", "commit_siblings=0"]).await;
    let server = server.unwrap();
    let names = ["a", "b", "c"];
    let stores = join_all(names.map(|_| server.store())).await;
    let held = async |(store, name): (&PostgresStore, &str)| {
        granted(store.acquire(&acquire(name, name, Mode::Exclusive)).await);
    };
    join_all(stores.iter().zip(names).map(held)).await;
    let _wakeups = stores[0].subscribe(&names.map(key)).await.unwrap();
    let ended = async |(store, name): (&PostgresStore, &str)| {
        store.release(&release(name, name)).await.unwrap();
    };
    let ends = join_all(stores.iter().zip(names).map(ended));
    let _wakeups = join(ends, stores[1].subscribe(&[key("d")])).await.1.unwrap();
    assert_eq!(server.logged_errors(), [] as [String; 0]);
}

/// With a standby that is missing, a commit that waits for the disk or a standby hangs.
#[tokio::test]
async fn a_refused_try_that_locks_the_row_waits_for_no_disk() {
    let server = Server::start(&[]).await.unwrap();
    let (store, other) = (server.store().await, server.store().await);
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let _wakeups = other.subscribe(&[key("k")]).await.unwrap();
    server.set("synchronous_standby_names", "missing").await;
    // What is granted waits, as soon as a process of the server's knows the setting.
    let names = AtomicUsize::new(0);
    until(async || {
        let name = names.fetch_add(1, Ordering::Relaxed).to_string();
        let request = acquire(&name, "waiter", Mode::SHARED);
        tokio::time::timeout(SECOND / 2, store.acquire(&request)).await.is_err()
    })
    .await;
    for mode in [Mode::Exclusive, Mode::SHARED] {
        refused(in_time(other.acquire(&acquire("k", "waiter", mode))).await);
    }
}

/// The release has looked for waiters before the waiter registered, and has not committed when the waiter tries: the try
/// waits for the row and finds it free.
#[tokio::test]
async fn a_release_that_did_not_see_the_waiter_is_seen_by_the_waiters_try() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let releasing = server.connect().await.unwrap();
    releasing
        .batch_execute(
            "BEGIN; SELECT * FROM leasehold.release(NULL, 'holder', '{k}', NULL, NULL, true)",
        )
        .await
        .unwrap();
    let _wakeups = store.subscribe(&[key("k")]).await.unwrap();
    let request = acquire("k", "waiter", Mode::Exclusive);
    let mut tries = Box::pin(store.acquire(&request));
    // It waits inside its own time limit, and answers nothing before the release has ended.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut tries).await.is_err());
    releasing.batch_execute("COMMIT").await.unwrap();
    granted(in_time(tries).await);
}

#[tokio::test]
async fn a_refused_try_of_one_who_does_not_listen_writes_nothing() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    refused(store.acquire(&acquire("k", "other", Mode::Exclusive)).await);
    let control = server.connect().await.unwrap();
    let written = async || -> i64 {
        let rows = control.query("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]);
        rows.await.unwrap()[0].get(0)
    };
    let before = written().await;
    for _ in 0..20 {
        refused(store.acquire(&acquire("k", "other", Mode::Exclusive)).await);
    }
    assert_eq!(written().await, before);
}

#[tokio::test]
async fn a_thousand_waiters_hold_up_no_index_and_no_vacuum() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut waiters = Vec::new();
    for _ in 0..1_000 {
        waiters.push(store.subscribe(&[key("k")]).await.unwrap());
    }
    refused(store.acquire(&acquire("k", "waiter", Mode::Exclusive)).await);
    server.run("CREATE TABLE t (n integer)").await;
    in_time(server.run("CREATE INDEX CONCURRENTLY ON t (n)")).await;
    in_time(server.run("VACUUM FULL leasehold.leases")).await;
    // All of them are one listener to the server.
    assert_eq!(listeners(&server).await, 1);
    store.release(&release("k", "holder")).await.unwrap();
    for wakeups in &mut waiters {
        in_time(wakeups.next()).await;
    }
}

#[tokio::test]
async fn a_waiter_whose_connection_ended_is_woken_and_polls_until_there_is_another() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
    let refusal = refused(store.acquire(&acquire("k", "waiter", Mode::Exclusive)).await);
    assert_eq!(refusal.poll_within, None);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query = ''";
    server.run(end).await;
    assert_eq!(in_time(wakeups.next()).await, key("k"));
    // Then the connection is replaced, and a release is notified again.
    until(async || {
        let refusal = refused(store.acquire(&acquire("k", "waiter", Mode::Exclusive)).await);
        refusal.poll_within.is_none()
    })
    .await;
    while wakeups.next().now_or_never().is_some() {}
    store.release(&release("k", "holder")).await.unwrap();
    assert_eq!(in_time(wakeups.next()).await, key("k"));
}

#[tokio::test]
async fn where_no_notification_can_arrive_waiters_poll() {
    let server = Server::start(&[]).await.unwrap();
    let silent = format!("{}&wakeups=0", server.url());
    let store = PostgresStore::connect(&silent).await.unwrap();
    store.prepare().await.unwrap();
    assert!(!store.capabilities().notifications);
    let hazards = store.check().await.unwrap().hazards;
    assert!(hazards.iter().any(|hazard| hazard.contains("wakeups")), "{hazards:?}");
    // A port on which nothing listens.
    let port = leasehold_conformance::free_port().unwrap();
    let nowhere = format!("{}&wakeups=127.0.0.1:{port}", server.url());
    let store = PostgresStore::connect(&nowhere).await.unwrap();
    assert!(store.capabilities().notifications);
    granted(store.acquire(&acquire_for("k", "holder", Mode::Exclusive, LONG)).await);
    assert!(store.subscribe(&[key("k")]).await.is_err());
    let refusal = refused(store.acquire(&acquire("k", "waiter", Mode::Exclusive)).await);
    assert_eq!(refusal.poll_within, Some(Duration::from_secs(1)));
}
