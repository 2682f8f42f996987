//! Several processes on one file, in their own namespaces and file systems. A test starts this binary again for
//! itself alone; `unshare` needs no privilege where user namespaces are allowed.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{Workplace, acquire, again, count, grant, passes_again, refuse, release, role};
use leasehold_core::{AcquireReply, Effect, ErrorKind, Filter, ListRequest, Note, Store};
use leasehold_sqlite::SqliteStore;

const USER: &[&str] = &["unshare", "--user"];
const MOUNT: &[&str] = &["unshare", "--user", "--map-root-user", "--mount"];
const TIME: &[&str] =
    &["unshare", "--user", "--map-root-user", "--time", "--boottime", "100000", "--fork"];

fn mount(arguments: &[&str], on: &Path) {
    assert!(Command::new("mount").args(arguments).arg(on).status().unwrap().success());
}

#[tokio::test]
async fn a_crowd_of_processes_opens_a_new_file_and_one_wins() {
    if let Some(path) = role() {
        let store = SqliteStore::open(&path).await.unwrap();
        let winner =
            matches!(acquire(&store, &own_id(), "k").await.unwrap(), AcquireReply::Granted(_));
        println!("winner: {winner}");
        return;
    }
    for _ in 0..8 {
        let place = Workplace::new();
        let crowd: Vec<_> = (0..8)
            .map(|_| {
                let mut command =
                    again("a_crowd_of_processes_opens_a_new_file_and_one_wins", &[], &place.path);
                command.stdout(std::process::Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let mut winners = 0;
        for process in crowd {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            winners +=
                usize::from(String::from_utf8_lossy(&output.stdout).contains("winner: true"));
        }
        assert_eq!(winners, 1);
        let raw = place.raw();
        assert_eq!((count(&raw, "leasehold_boots"), count(&raw, "leasehold_holders")), (1, 1));
    }
}

fn own_id() -> String {
    format!("process {}", std::process::id())
}

#[test]
fn a_crowd_of_threads_opens_a_new_file_and_one_wins() {
    for _ in 0..20 {
        let place = Workplace::new();
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|thread| {
                    let path = &place.path;
                    scope.spawn(move || {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_time()
                            .build()
                            .unwrap();
                        runtime.block_on(async {
                            let store = SqliteStore::open(path).await.unwrap();
                            let reply = acquire(&store, &format!("{thread}"), "k").await.unwrap();
                            usize::from(matches!(reply, AcquireReply::Granted(_)))
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
        assert_eq!(count(&place.raw(), "leasehold_boots"), 1);
    }
}

#[tokio::test]
async fn a_process_that_comes_and_goes_leaves_anothers_log_alone() {
    if let Some(path) = role() {
        let store = SqliteStore::open(&path).await.unwrap();
        refuse(&store, "theirs", "k").await;
        store.close_database().await;
        return;
    }
    let place = Workplace::new();
    let store = SqliteStore::open(&place.path).await.unwrap();
    grant(&store, "ours", "k").await;
    // Looking at the file must not drop this process's POSIX locks on it. Otherwise the other process would
    // consider itself the last one and remove the log.
    SqliteStore::open(&place.path).await.unwrap().close_database().await;
    store.check().await.unwrap();
    passes_again("a_process_that_comes_and_goes_leaves_anothers_log_alone", &[], &place.path);
    assert!(place.beside("-wal").exists());
    release(&store, "ours", "k").await;
    grant(&SqliteStore::open(&place.path).await.unwrap(), "ours again", "k").await;
}

#[tokio::test]
async fn another_time_namespace_is_refused_for_real() {
    if let Some(path) = role() {
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("boot time +100000000000000 ns"), "{error}");
        return;
    }
    let place = Workplace::new();
    let store = SqliteStore::open(&place.path).await.unwrap();
    grant(&store, "a", "k").await;
    passes_again("another_time_namespace_is_refused_for_real", TIME, &place.path);
    release(&store, "a", "k").await;
    grant(&store, "b", "k").await;
}

#[tokio::test]
async fn a_full_disk_is_unavailable_without_effect_and_heals() {
    if let Some(path) = role() {
        let disk = path.parent().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=400k", "none"], disk);
        let store = SqliteStore::open(&path).await.unwrap();
        let note = Note::default().with_comment(&"x".repeat(Note::MAX_COMMENT_BYTES)).unwrap();
        let mut granted = 0;
        let error = loop {
            let name = format!("{granted}");
            match store.acquire(&crate::common::request(&name, &name).with_note(note.clone())).await
            {
                Ok(_) => granted += 1,
                Err(e) => break e,
            }
        };
        assert!(granted > 0);
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Unavailable, Effect::NotApplied),
            "{error}"
        );
        assert!(error.to_string().contains("is full"), "{error}");
        let all = ListRequest::new(Filter::default()).with_limit(1_000);
        assert_eq!(store.list(&all).await.unwrap().records.len(), granted);
        mount(&["-o", "remount,size=8m"], disk);
        grant(&store, "last", &format!("{granted}")).await;
        let health = store.check().await.unwrap();
        assert!(!health.durable && health.hazards[0].contains("in memory"), "{health:?}");
        return;
    }
    passes_again(
        "a_full_disk_is_unavailable_without_effect_and_heals",
        MOUNT,
        &Workplace::new().path,
    );
}

#[tokio::test]
async fn a_read_only_file_system_is_denied() {
    if let Some(path) = role() {
        let disk = path.parent().unwrap();
        mount(&["-t", "tmpfs", "none"], disk);
        let store = SqliteStore::open(&path).await.unwrap();
        grant(&store, "a", "k").await;
        store.close_database().await;
        mount(&["-o", "remount,ro"], disk);
        for path in [&path, &disk.join("new.db")] {
            let error = SqliteStore::open(path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.to_string().contains("Read-only file system"), "{error}");
        }
        return;
    }
    passes_again("a_read_only_file_system_is_denied", MOUNT, &Workplace::new().path);
}

#[tokio::test]
async fn a_file_that_is_mounted_alone_is_refused() {
    if let Some(path) = role() {
        let inner = path.with_file_name("mounted here.db");
        fs::write(&inner, "").unwrap();
        mount(&["--bind", path.to_str().unwrap()], &inner);
        let error = SqliteStore::open(&inner).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("mount its directory"), "{error}");
        return;
    }
    let place = Workplace::new();
    SqliteStore::open(&place.path).await.unwrap().close_database().await;
    passes_again("a_file_that_is_mounted_alone_is_refused", MOUNT, &place.path);
}

#[tokio::test]
async fn a_user_without_permission_is_denied() {
    if let Some(path) = role() {
        for path in [path.clone(), path.with_file_name("closed").join("new.db")] {
            let error = SqliteStore::open(&path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.to_string().contains("Permission denied"), "{error}");
        }
        return;
    }
    let place = Workplace::new();
    SqliteStore::open(&place.path).await.unwrap().close_database().await;
    let closed = place.directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    for path in [&place.path, &closed] {
        fs::set_permissions(path, Permissions::from_mode(0o500)).unwrap();
    }
    // In its own user namespace, even root has no privilege over files outside it.
    passes_again("a_user_without_permission_is_denied", USER, &place.path);
}

#[tokio::test]
async fn where_the_kernel_gives_no_events_waiters_are_woken_too() {
    if let Some(path) = role() {
        fs::write("/proc/sys/user/max_inotify_instances", "0").unwrap();
        let soon = crate::wakeups::soon_of_20(&path).await;
        assert!(soon >= 15, "{soon} of 20");
        return;
    }
    let place = Workplace::new();
    let mapped = &["unshare", "--user", "--map-root-user"];
    passes_again("where_the_kernel_gives_no_events_waiters_are_woken_too", mapped, &place.path);
}

#[tokio::test]
async fn a_waiter_that_is_killed_while_it_watches_leaves_others_alone() {
    if let Some(path) = role() {
        let store = SqliteStore::open(&path).await.unwrap();
        let mut wakeups = store.subscribe(&[crate::common::key("k")]).await.unwrap();
        println!("watches");
        loop {
            wakeups.next().await;
        }
    }
    let place = Workplace::new();
    SqliteStore::open(&place.path).await.unwrap().close_database().await;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let test = "a_waiter_that_is_killed_while_it_watches_leaves_others_alone";
        let mut command = again(test, &[], &place.path);
        let mut waiter = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(waiter.stdout.take().unwrap());
        printed.lines().find(|line| line.as_ref().unwrap().contains("watches")).unwrap().unwrap();
        waiters.push(waiter);
    }
    for waiter in &mut waiters {
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        let soon = crate::wakeups::soon_of_20(&place.path).await;
        assert!(soon >= 15, "{soon} of 20");
    }
    let raw = place.raw();
    assert_eq!((count(&raw, "leasehold_boots"), count(&raw, "leasehold_holders")), (1, 1));
}

/// In a process of its own: it has one thread that watches.
#[tokio::test]
async fn who_waits_while_nothing_is_written_sleeps() {
    if let Some(path) = role() {
        let (holder, waiter) =
            (SqliteStore::open(&path).await.unwrap(), SqliteStore::open(&path).await.unwrap());
        grant(&holder, "a", "k").await;
        let _wakeups = waiter.subscribe(&[crate::common::key("k")]).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let waits = waits_of("leasehold-watch");
        assert!((1..40).contains(&waits), "{waits} waits in 2 s");
        return;
    }
    let place = Workplace::new();
    passes_again("who_waits_while_nothing_is_written_sleeps", &["env"], &place.path);
}

/// How often the thread of this name has waited.
fn waits_of(name: &str) -> u64 {
    let all = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of = |task: &Path| fs::read_to_string(task.join("comm")).unwrap();
    let task = all.into_iter().find(|task| of(task).trim() == name).unwrap();
    let status = fs::read_to_string(task.join("status")).unwrap();
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    waits.unwrap().trim().parse().unwrap()
}
