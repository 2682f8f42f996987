//! Processes of one machine exclude each other through one SQLite file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use leasehold::inspect::Filter;
use leasehold::{Event, Locker, LostReason, Wait};

/// Set for the processes that do the work; names their common folder.
const FOLDER: &str = "LEASEHOLD_TEST_FOLDER";

#[test]
fn eight_processes_count_to_eight_thousand_without_losing_an_increment() {
    count("eight_processes_count_to_eight_thousand_without_losing_an_increment", 8, 1_000);
}

#[test]
fn fifty_processes_wait_for_one_key_and_each_has_its_turns() {
    count("fifty_processes_wait_for_one_key_and_each_has_its_turns", 50, 20);
}

/// Lets so many processes, each this test again, add one to a number so often.
fn count(test: &str, processes: usize, rounds: usize) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(Path::new(&folder), rounds);
    }
    let folder = leasehold_testkit::new_directory().unwrap();
    let counter = folder.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let start = || -> Child {
        let this = std::env::current_exe().unwrap();
        let name = format!("processes::{test}");
        Command::new(this).args(["--exact", &name]).env(FOLDER, folder.path()).spawn().unwrap()
    };
    let children: Vec<_> = (0..processes).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let counted: usize = fs::read_to_string(&counter).unwrap().parse().unwrap();
    assert_eq!(counted, processes * rounds);
    let tokens: Vec<u64> = fs::read_to_string(folder.path().join("tokens"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(tokens.len(), processes * rounds);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "tokens grow in the order of grants");
}

/// Reads, adds one and writes, protected only by the lock.
fn work(folder: &Path, rounds: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}", folder.join("locks.db").display());
        let locks = Locker::connect(&url).await.unwrap();
        let counter = folder.join("counter");
        for _ in 0..rounds {
            let guard = locks.lock("counter").wait(Wait::Forever).await.unwrap();
            let count: usize = fs::read_to_string(&counter).unwrap().parse().unwrap();
            fs::write(&counter, (count + 1).to_string()).unwrap();
            let tokens = folder.join("tokens");
            let mut tokens = fs::OpenOptions::new().create(true).append(true).open(tokens).unwrap();
            writeln!(tokens, "{}", guard.token().unwrap()).unwrap();
            assert!(guard.is_held());
            guard.release().await.unwrap();
        }
    });
}

/// Another process may hold the lock in a new file by then.
#[tokio::test]
async fn a_hold_ends_with_its_file_and_not_with_its_term() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    let guard = Locker::connect(&url).await.unwrap().lock("k").await.unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(&LostReason::StoreReplaced), "{error}");
    assert!(!guard.is_held());
}

/// What another process does with the file stops every write of this one, renewals too.
#[tokio::test]
async fn leases_outlive_a_write_lock_of_another_process_for_half_their_term() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let locks = Locker::connect(&format!("sqlite:{}", file.display())).await.unwrap();
    let ttl = Duration::from_secs(6);
    let mut guards = Vec::new();
    for n in 0..8 {
        guards.push(locks.lock(format!("k{n}")).ttl(ttl).await.unwrap());
    }
    let mut renewals = guards[0].events();
    let mut renewed = async || loop {
        match renewals.next().await {
            Some(Event::Renewed { .. }) => break,
            Some(Event::Failed(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    renewed().await;
    let other = rusqlite::Connection::open(file).unwrap();
    let locked = async {
        // It begins shortly before the next renewal, which then has the least time. Only time can show that.
        tokio::time::sleep(ttl.mul_f64(0.3)).await;
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        tokio::time::sleep(ttl / 2).await;
        other.execute_batch("COMMIT").unwrap();
    };
    let looks = async {
        // Queued behind the writes.
        while let Ok(found) = locks.list(Filter::default()).await {
            assert_eq!(found.records.len(), 8);
        }
        panic!("a list failed");
    };
    tokio::select! {
        () = locked => {}
        () = looks => {}
    }
    renewed().await;
    for guard in &guards {
        guard.verify().await.unwrap();
    }
}
