//! Processes of one machine exclude each other through one SQLite file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};

use leasehold::{Locker, LostReason, Wait};

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
    let folder = tempfile::tempdir().unwrap();
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
    assert_eq!(error.lost(), Some(&LostReason::StoreReplaced), "{error}");
    assert!(!guard.is_held());
}
