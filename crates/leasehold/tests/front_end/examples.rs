//! The programs in `examples/`, each as a user would run it: on a SQLite file, in two `Locker`s that stand for two
//! processes. `election_example` runs the leader.

use std::collections::HashMap;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use leasehold::{Locker, Wait};
use leasehold_testkit::until;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{Flaky, secs};

macro_rules! examples {
    ($($name:ident in $path:literal),*) => {
        $(#[path = $path] #[allow(dead_code, reason = "its main is the example's")] mod $name;)*
    };
}

examples!(
    cron in "../../examples/cron.rs",
    fenced_write in "../../examples/fenced_write.rs",
    http in "../../examples/http.rs",
    manual_clock in "../../examples/manual_clock.rs",
    many_keys in "../../examples/many_keys.rs",
    migration in "../../examples/migration.rs",
    mutex in "../../examples/mutex.rs",
    quorum in "../../examples/quorum.rs",
    semaphore in "../../examples/semaphore.rs"
);

/// Two `Locker`s on one file.
async fn two_processes() -> (TempDir, [Locker; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let processes = [Locker::connect(&url).await.unwrap(), Locker::connect(&url).await.unwrap()];
    (folder, processes)
}

#[tokio::test]
async fn mutex_writes_one_report_at_a_time() {
    let (_folder, [one, two]) = two_processes().await;
    mutex::report(&one, async {
        // Only an exclusive holder refuses it.
        let shared = two.lock("report:monthly").shared().wait(Wait::No).await;
        assert!(shared.unwrap_err().is_held());
    })
    .await
    .unwrap();
    assert!(!two.is_held("report:monthly").await.unwrap());
}

#[tokio::test]
async fn cron_runs_a_job_once() {
    let (_folder, [one, two]) = two_processes().await;
    let runs = AtomicUsize::new(0);
    let job = async || {
        runs.fetch_add(1, SeqCst);
    };
    assert!(cron::hourly(&one, job()).await.unwrap());
    // It is done, and the lock is still taken.
    assert!(!cron::hourly(&two, job()).await.unwrap());
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn migration_is_run_by_one_of_two_instances() {
    let (folder, [one, two]) = two_processes().await;
    let app = folder.path().join("app.db");
    let (first, second) =
        tokio::join!(migration::migrate(&one, &app), migration::migrate(&two, &app));
    let mut run = [first.unwrap(), second.unwrap()];
    run.sort_unstable();
    assert_eq!(run, [0, 2]);
}

#[tokio::test]
async fn fenced_write_refuses_the_holder_that_was_overtaken() {
    let (_folder, [locks, _]) = two_processes().await;
    fenced_write::overtaken(&locks).await.unwrap();
}

#[tokio::test]
async fn semaphore_lets_three_in_at_a_time() {
    let (_folder, [one, two]) = two_processes().await;
    let inside = Barrier::new(4);
    let on_a_card = |locks| {
        semaphore::on_a_card(locks, Wait::Forever, async {
            inside.wait().await; // three are inside
            inside.wait().await; // the fourth was refused
        })
    };
    let fourth = async {
        inside.wait().await;
        let refused = semaphore::on_a_card(&two, Wait::No, async {}).await.unwrap_err();
        inside.wait().await;
        refused
    };
    let (a, b, c, refused) =
        tokio::join!(on_a_card(&one), on_a_card(&one), on_a_card(&two), fourth);
    a.and(b).and(c).unwrap();
    assert!(refused.is_held());
}

#[tokio::test]
async fn many_keys_loses_no_transfer_and_does_not_deadlock() {
    let (_folder, [locks, _]) = two_processes().await;
    let accounts = Arc::new(Mutex::new(HashMap::from([("a", 100), ("b", 100)])));
    many_keys::both_ways(&locks, &accounts).await.unwrap();
    assert_eq!(*accounts.lock().unwrap(), HashMap::from([("a", 100), ("b", 100)]));
}

#[tokio::test(start_paused = true)]
async fn many_keys_waits_for_a_reader_of_both_accounts() {
    let (store, accounts) =
        (Flaky::new(), Arc::new(Mutex::new(HashMap::from([("a", 100), ("b", 100)]))));
    let reader = store.others().lock_all(["account:a", "account:b"]).shared().await.unwrap();
    let locks = store.locks();
    let mut transfers = pin!(many_keys::both_ways(&locks, &accounts));
    tokio::time::timeout(secs(60), &mut transfers).await.expect_err("they are beside the reader");
    reader.release().await.unwrap();
    transfers.await.unwrap();
}

#[tokio::test]
async fn http_answers_409_with_the_holder() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = http::service(Locker::connect("local:").await.unwrap());
    let mut server = JoinSet::new();
    server.spawn(async { axum::serve(listener, service).await });
    let ask = async |document: u32, user: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /documents/{document}/edit HTTP/1.1\r\nHost: x\r\nUser: {user}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(ask(7, "alice").await.starts_with("HTTP/1.1 200"));
    let refused = ask(7, "bob").await;
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    assert!(
        refused.contains("retry-after: ") && refused.ends_with("alice is editing\n"),
        "{refused}"
    );
    assert!(ask(8, "bob").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn quorum_works_while_one_of_three_nodes_fails() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a.db", "b.db", "c.db"].map(|name| folder.path().join(name));
    let missing = Path::new("/dev/null/c.db");
    let locks = quorum::connect([&a, &b, &c]).await.unwrap();
    let guard = quorum::lock(&locks).await.unwrap();
    assert!(guard.is_held());
    let has_it = async |node: &Path| {
        let node = Locker::connect(&format!("sqlite:{}", node.display())).await.unwrap();
        node.is_held("report:monthly").await.unwrap()
    };
    // A node that was late has it once it is renewed.
    until(async || guard.renew().await.is_ok() && has_it(&a).await && has_it(&b).await).await;

    let other = quorum::connect([missing, &a, &b]).await.unwrap();
    // Only an exclusive holder refuses it, and a node that is late does not answer.
    let shared = async || other.lock("report:monthly").shared().wait(Wait::No).await;
    until(async || shared().await.unwrap_err().is_held()).await;
    guard.release().await.unwrap();
    let guard = quorum::lock(&other).await.unwrap();
    // Two nodes have granted it; the third may not have answered yet, or has failed.
    assert!(guard.is_held());
    assert!(quorum::connect([missing, &a, missing]).await.is_err());
}

#[tokio::test]
async fn manual_clock_ends_terms_without_sleeping() {
    manual_clock::a_crashed_holder_is_replaced_when_its_term_ends().await.unwrap();
    manual_clock::a_paused_holder_knows_that_it_has_lost_the_lock().await.unwrap();
}
