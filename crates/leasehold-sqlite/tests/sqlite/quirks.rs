//! What is specific to the SQLite store: its file, boots and time namespaces, and what it writes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::common::{
    SECOND, Workplace, acquire, count, data_version, grant, id, key, refuse, release,
    renew_to_never,
};
use leasehold_core::{
    AcquireRequest, Claims, Clock, Effect, Error, ErrorKind, Filter, GroupName, LeaseId, Level,
    ListRequest, LostReason, Mode, Note, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry,
    RenewOutcome, RenewRequest, Store, Ttl,
};
use leasehold_sqlite::{SqliteConfig, SqliteStore};

#[tokio::test]
async fn all_files_are_0600() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    for suffix in ["", "-wal", "-shm"] {
        let mode = place.beside(suffix).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{suffix}");
    }
    let health = store.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::Fenced, true), "{health:?}");
    assert_eq!((health.schema, health.hazards), (Some(2), vec![]));
}

#[tokio::test]
async fn open_modes_are_a_hazard() {
    let place = Workplace::new();
    let store = place.open().await;
    std::fs::set_permissions(&place.path, Permissions::from_mode(0o644)).unwrap();
    std::fs::set_permissions(place.directory.path(), Permissions::from_mode(0o770)).unwrap();
    let hazards = store.check().await.unwrap().hazards.join("\n");
    assert!(hazards.contains("mode 0644") && hazards.contains("mode 0770"), "{hazards}");
}

/// Whatever the umask, and its log and shared memory too: the group's users then have access.
#[tokio::test]
async fn a_file_shared_with_its_group_is_no_hazard() {
    let place = Workplace::new();
    std::fs::set_permissions(place.directory.path(), Permissions::from_mode(0o2770)).unwrap();
    let url = format!("sqlite:{}?mode=0660", place.path.display());
    let store = SqliteConfig::parse(&url).unwrap().connect().await.unwrap();
    grant(&store, "own", "k").await;
    for suffix in ["", "-wal", "-shm"] {
        let path = format!("{}{suffix}", place.path.display());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o660, "{path}");
    }
    assert_eq!(store.check().await.unwrap().hazards, Vec::<String>::new());
    std::fs::set_permissions(&place.path, Permissions::from_mode(0o664)).unwrap();
    let hazards = store.check().await.unwrap().hazards;
    assert!(matches!(&hazards[..], [one] if one.contains("chmod 660")), "{hazards:?}");
}

#[tokio::test]
async fn the_file_has_the_application_id_and_durable_settings() {
    let place = Workplace::new();
    let _store = place.open().await;
    let raw = place.raw();
    let pragma = |name| raw.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("application_id"), pragma("user_version")), (0x4c73_6864, 2));
    let mode: String = raw.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn missing_directories_are_created_on_request() {
    let place = Workplace::new();
    let path = place.directory.path().join("a/b/locks.db");
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    SqliteConfig::file(&path).create_parent(true).connect().await.unwrap();
    let mode = path.parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[tokio::test]
async fn closing_the_last_handle_closes_the_file() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    store.clone().close_database().await;
    assert!(place.beside("-wal").exists(), "another handle is left");
    store.close_database().await;
    assert!(!place.beside("-wal").exists() && !place.beside("-shm").exists());
}

#[tokio::test]
async fn a_closed_file_has_no_log_and_is_opened_again_when_it_is_used() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    let closed = async || {
        assert!(place.beside("-wal").exists());
        store.close().await;
        assert!(!place.beside("-wal").exists() && !place.beside("-shm").exists());
    };
    refuse(&store, "b", "k").await;
    closed().await;
    // The thread that looks for a waiter has the file open too, and ends some time after the wait.
    for _ in 0..50 {
        drop(store.subscribe(&[key("k")]).await.unwrap());
        closed().await;
    }
    let memory = SqliteStore::in_memory().await.unwrap();
    grant(&memory, "a", "k").await;
    memory.close().await;
    refuse(&memory, "b", "k").await;
}

#[tokio::test]
async fn tokens_and_leases_survive_reopening() {
    let place = Workplace::new();
    let store = place.open().await;
    let first = grant(&store, "a", "k").await.token;
    grant(&store, "b", "other").await;
    assert!(matches!(release(&store, "a", "k").await, ReleaseOutcome::Released));
    store.close_database().await;
    place.clock.set_wall_micros(1);
    let store = place.open().await;
    assert!(grant(&store, "c", "k").await.token > first, "although the wall clock went back");
    refuse(&store, "d", "other").await;
}

#[tokio::test]
async fn two_stores_on_one_file_exclude_each_other() {
    let place = Workplace::new();
    let (one, two) = (place.open().await, place.open().await);
    grant(&one, "a", "k").await;
    assert_eq!(refuse(&two, "b", "k").await.retry_after, Some(30 * SECOND));
    assert!(matches!(release(&two, "a", "k").await, ReleaseOutcome::Released));
    grant(&two, "b", "k").await;
    refuse(&one, "a2", "k").await;
    assert_eq!(one.check().await.unwrap().identity, two.check().await.unwrap().identity);
}

#[tokio::test]
async fn prefixes_are_separate_and_memory_is_private() {
    let place = Workplace::new();
    let jobs = place.config().prefix("jobs_").connect().await.unwrap();
    let other = place.open().await;
    grant(&jobs, "a", "k").await;
    grant(&other, "b", "k").await;
    assert_eq!(count(&place.raw(), "jobs_holders"), 1);
    let (one, two) =
        (SqliteStore::in_memory().await.unwrap(), SqliteStore::in_memory().await.unwrap());
    grant(&one, "a", "k").await;
    grant(&two, "b", "k").await;
    let (one, two) = (one.check().await.unwrap(), two.check().await.unwrap());
    assert_ne!(one.identity, two.identity);
    assert_eq!((one.level, one.durable), (Level::Fenced, true));
}

#[tokio::test]
async fn a_refusal_writes_nothing() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    let raw = place.raw();
    let log = || place.beside("-wal").metadata().unwrap().len();
    let before = (data_version(&raw), log());
    for _ in 0..10 {
        refuse(&store, "b", "k").await;
    }
    assert!(matches!(release(&store, "b", "k").await, ReleaseOutcome::NotHeld));
    assert_eq!((data_version(&raw), log()), before);
    release(&store, "a", "k").await;
    assert_ne!((data_version(&raw), log()), before, "a write does show");
}

#[tokio::test]
async fn prepare_writes_only_what_is_missing() {
    let place = Workplace::new();
    let store = place.open().await;
    let raw = place.raw();
    let before = data_version(&raw);
    store.prepare().await.unwrap();
    place.open().await;
    assert_eq!(data_version(&raw), before);
    for table in ["boots", "mark", "holders"] {
        raw.execute_batch(&format!("DROP TABLE leasehold_{table}")).unwrap();
    }
    store.prepare().await.unwrap();
    grant(&store, "a", "k").await;
}

#[tokio::test]
async fn after_a_reboot_terms_have_ended_but_leases_without_end_have_not() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "finite", "a").await;
    grant(&store, "endless", "b").await;
    renew_to_never(&store, "endless", "b").await;
    place.raw().execute("UPDATE leasehold_boots SET boot_id = 'another'", []).unwrap();
    let after = place.open().await;
    refuse(&after, "new", "b").await;
    assert!(matches!(release(&after, "finite", "a").await, ReleaseOutcome::Expired));
    grant(&after, "new", "a").await;
    assert!(matches!(release(&after, "endless", "b").await, ReleaseOutcome::Released));
    let raw = place.raw();
    assert_eq!(count(&raw, "leasehold_boots"), 2);
    let error = acquire(&store, "late", "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "a process of the old boot: {error}");
    assert!(error.to_string().contains("epoch 2; ours is 1"), "{error}");
    assert_eq!(lost(&store).await, LostReason::StoreReplaced);
}

#[tokio::test]
async fn another_time_namespace_is_admitted_once_no_term_is_left() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "finite", "a").await;
    grant(&store, "endless", "b").await;
    renew_to_never(&store, "endless", "b").await;
    // The kernel gives the number of an ended namespace to the next one, so the offset counts too.
    for other in
        ["time_ns = time_ns + 1", "time_ns = time_ns - 1, time_offset_ns = time_offset_ns + 1"]
    {
        place.raw().execute(&format!("UPDATE leasehold_boots SET {other}"), []).unwrap();
        let error = place.config().connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        let text = error.to_string();
        assert!(text.contains("time namespace") && text.contains("DELETE FROM leasehold_holders"));
    }
    release(&store, "finite", "a").await;
    let adopted = place.open().await;
    refuse(&adopted, "new", "b").await;
    grant(&adopted, "new", "a").await;
    let error = acquire(&store, "late", "c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
}

#[tokio::test]
async fn a_replaced_file_is_noticed() {
    let place = Workplace::new();
    let store = place.open().await;
    grant(&store, "a", "k").await;
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(place.beside(suffix)).unwrap();
    }
    let gone = acquire(&store, "b", "k2").await.unwrap_err();
    assert_eq!(lost(&store).await, LostReason::StoreReplaced);
    let other = place.open().await;
    grant(&other, "c", "k").await;
    assert_eq!(lost(&store).await, LostReason::StoreReplaced);
    let replaced = release_error(&store).await;
    for error in [gone, replaced] {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Incompatible, Effect::NotApplied));
        assert!(error.to_string().contains("removed or replaced"), "{error}");
    }
}

/// Why the lease of `a_replaced_file_is_noticed` is lost.
async fn lost(store: &SqliteStore) -> LostReason {
    let claims = Claims::one(key("k"), Mode::Exclusive);
    let entry = RenewEntry::extend(id("a"), claims, Ttl::new(30 * SECOND).unwrap());
    match store.renew(&RenewRequest::new(vec![entry])).await.unwrap().leases.remove(0) {
        RenewOutcome::Lost(Some(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

async fn release_error(store: &SqliteStore) -> Error {
    let ending = ReleaseEntry::new(id("a"), [key("k")]);
    store.release(&ReleaseRequest::new(vec![ending])).await.unwrap_err()
}

#[tokio::test]
async fn a_second_name_of_the_file_is_noticed() {
    let place = Workplace::new();
    let store = place.open().await;
    std::fs::hard_link(&place.path, place.directory.path().join("second.db")).unwrap();
    for error in
        [acquire(&store, "a", "k").await.unwrap_err(), place.config().connect().await.unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("2 names"), "{error}");
    }
}

#[tokio::test]
async fn a_lease_of_many_keys_and_modes_round_trips() {
    let place = Workplace::new();
    let store = place.open().await;
    let note = Note::default();
    let note = note.with_host("h").unwrap().with_pid(u32::MAX).with_program("p").unwrap();
    let claims = Claims::all([key("ключ %_*"), key("b")], Mode::SHARED).unwrap();
    let ttl = Ttl::new(30 * SECOND).unwrap();
    let given = AcquireRequest::new(LeaseId::foreign(&[0, 0xff, b'\'']).unwrap(), claims, ttl)
        .with_group(GroupName::new("o'; --").unwrap())
        .with_note(note.with_comment("c").unwrap());
    store.acquire(&given).await.unwrap();
    let all = ListRequest::new(Filter::default());
    let page = store.list(&all).await.unwrap();
    assert_eq!(page.records.len(), 2);
    for record in page.records {
        assert_eq!(record.id.as_ref(), Some(given.id()));
        assert_eq!((record.group.as_ref(), &record.note), (given.group(), given.note()));
        assert_eq!(record.mode, Mode::SHARED);
        assert_eq!(record.age, Some(Duration::ZERO));
    }
    let raw = place.raw();
    let expires: i64 =
        raw.query_row("SELECT max(expires) FROM leasehold_holders", [], |row| row.get(0)).unwrap();
    assert_eq!(u128::try_from(expires).unwrap(), (place.clock.now() + 30 * SECOND).as_micros());
}
