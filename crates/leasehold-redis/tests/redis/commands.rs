//! Servers whose operator denies, renames or removes commands.

use leasehold_core::{Effect, ErrorKind, Health, Level, Mode, ReleaseOutcome, Store as _};
use leasehold_testkit::in_time;
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::requests::{acquire, failed, granted, key, only, release};

/// A server with these settings that has one command under another name.
async fn without(command: &str, settings: &[&str]) -> Server {
    let hidden = format!("hidden-{command}");
    let renamed = ["--rename-command", command, &hidden];
    Server::start(&[settings, &renamed].concat()).await.unwrap()
}

#[tokio::test]
async fn eviction_is_refused_unless_it_is_allowed() {
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let denied = Server::start(&evicts).await.unwrap();
    denied.ask(&["ACL", "SETUSER", "default", "-config"]).await.unwrap();
    for server in [Server::start(&evicts).await.unwrap(), denied, without("CONFIG", &evicts).await]
    {
        let checked = server.checked("").await;
        failed(checked, ErrorKind::Incompatible, Effect::NotApplied, "allow_eviction=1");
        let (_, health) = server.checked("allow_eviction=1").await.unwrap();
        assert_eq!(health.level, Level::BestEffort);
        let is_named = health.hazards.iter().any(|hazard| hazard.contains("may evict locks"));
        assert!(is_named, "{health:?}");
    }
}

#[tokio::test]
async fn what_config_does_not_show_is_named_and_not_assumed() {
    let denied = Server::start(DURABLE).await.unwrap();
    denied.ask(&["ACL", "SETUSER", "default", "-config"]).await.unwrap();
    for server in [denied, without("CONFIG", DURABLE).await] {
        let (store, health) = server.checked("max_ttl=1ms").await.unwrap();
        let is_named = |hazard: &String| hazard.contains("does not show appendfsync");
        assert!(health.hazards.iter().any(is_named), "{health:?}");
        assert_eq!((health.level, health.durable), (Level::BestEffort, false));
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        // The operator knows.
        let (_, health) = server.checked("durable=1").await.unwrap();
        assert!(health.hazards.iter().any(is_named), "{health:?}");
        assert_eq!((health.level, health.durable), (Level::Fenced, true));
    }
    // What INFO shows is checked all the same.
    let forgets = without("CONFIG", &[]).await;
    let checked = forgets.checked("durable=1").await;
    failed(checked, ErrorKind::Incompatible, Effect::NotApplied, "no append-only file");
}

#[tokio::test]
async fn a_check_names_the_commands_that_are_renamed_or_denied() {
    let scripted = [
        "DEL",
        "EXISTS",
        "GET",
        "HDEL",
        "HGETALL",
        "HSET",
        "MGET",
        "PERSIST",
        "PEXPIREAT",
        "PEXPIRETIME",
        "SCAN",
        "SET",
    ];
    let hidden: Vec<_> = scripted.iter().map(|command| format!("hidden-{command}")).collect();
    let renamed = scripted.iter().zip(&hidden);
    let settings: Vec<_> =
        renamed.flat_map(|(command, hidden)| ["--rename-command", command, hidden]).collect();
    let checked = Server::start(&settings).await.unwrap().checked("").await;
    let (kind, effect) = (ErrorKind::Incompatible, Effect::NotApplied);
    let error = failed(checked, kind, effect, "renamed or removed").to_string();
    assert!(scripted.iter().all(|command| error.contains(command)), "{error}");
    for command in ["EVAL", "EVALSHA", "TIME"] {
        failed(without(command, &[]).await.checked("").await, kind, effect, "renamed or removed");
    }
    let checked = without("WAIT", &[]).await.checked("replicas=1").await;
    failed(checked, kind, effect, "WAIT");

    let silent = without("SPUBLISH", &[]).await;
    let (_, health) = silent.checked("").await.unwrap();
    let has_hazard =
        |health: &Health, fragment: &str| health.hazards.iter().any(|one| one.contains(fragment));
    assert!(has_hazard(&health, "SPUBLISH, so waiters poll"), "{health:?}");
    let denied = Server::start(&[]).await.unwrap();
    denied.ask(&["ACL", "SETUSER", "default", "-hset"]).await.unwrap();
    let (_, health) = denied.checked("").await.unwrap();
    assert!(has_hazard(&health, "may not run HSET"), "{health:?}");
    let rule = ["ACL", "SETUSER", "default", "resetkeys", "~lh:lock:*", "~leasehold"];
    denied.ask(&rule).await.unwrap();
    let (_, health) = denied.checked("").await.unwrap();
    assert!(has_hazard(&health, "GET lh:token, SET lh:token"), "{health:?}");
}

#[tokio::test]
async fn an_acquire_that_lacks_a_command_takes_no_key() {
    let (exclusive, shared) =
        (["TIME", "EXISTS", "GET", "SET"], ["MGET", "HGETALL", "HSET", "PEXPIREAT"]);
    let exclusive = exclusive.map(|command| (command, Mode::Exclusive));
    let shared = shared.map(|command| (command, Mode::SHARED));
    for (command, mode) in exclusive.into_iter().chain(shared) {
        let server = without(command, &[]).await;
        let store = server.store().await;
        let acquired = store.acquire(&acquire("k", "a", mode)).await;
        let fragment = "renamed or removed a command";
        failed(acquired, ErrorKind::Incompatible, Effect::Unknown, fragment);
        assert_eq!(server.number(&["STRLEN", "k"]).await, 0, "{command}");
    }
    let server = without("EVALSHA", &[]).await;
    let acquired = server.store().await.acquire(&acquire("k", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "EVALSHA");
}

#[tokio::test]
async fn a_release_that_lacks_a_command_frees_the_key() {
    for command in ["PUBSUB", "SPUBLISH"] {
        let server = without(command, &[]).await;
        let store = server.store().await;
        let mut wakeups = store.subscribe(&[key("k")]).await.unwrap();
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        let released = store.release(&release("k", "a")).await;
        assert_eq!(server.number(&["EXISTS", "k"]).await, 0, "{command}");
        assert!(matches!(only(released.unwrap().leases), ReleaseOutcome::Released));
        if command == "PUBSUB" {
            assert_eq!(in_time(wakeups.next()).await, key("k"), "how many listen is not needed");
        }
    }
}
