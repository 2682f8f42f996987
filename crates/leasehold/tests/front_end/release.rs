//! F7 to F10: release, hand over, drop; many keys; groups; errors; closing.

use crate::support::{Fault, Flaky, Sent, ms, secs, taken};
use leasehold::store::STORES;
use leasehold::{
    Claim, Claims, Effect, ErrorKind, Key, LeaseId, Locker, Mode, ReleaseOutcome, Remaining, Ttl,
    Wait,
};

#[tokio::test(start_paused = true)]
async fn release_returns_the_stores_answer() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").await.unwrap();
    let released = guard.release().await.unwrap();
    assert!(matches!(released.outcome, ReleaseOutcome::Released));
    assert_eq!((released.nodes_total(), released.has_majority()), (0, None), "no quorum");
    let guard = locks.lock("k").await.unwrap();
    store.evict("k", "x").await;
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::NotHeld));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released_in_the_background_without_panic_or_runtime() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    store.until_free("k").await;
    let guards = locks.lock_all(["a", "b"]).await.unwrap();
    drop(guards);
    locks.close(secs(1)).await.unwrap();
    assert!(store.is_free("a").await && store.is_free("b").await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_handed_over_and_adopted() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(10)).group("o").await.unwrap();
    let token = guard.token();
    tokio::time::sleep(secs(2)).await;
    let lease = guard.detach();
    tokio::time::sleep(secs(7)).await;
    let adopted = store.others().adopt(lease.clone()).await.unwrap();
    assert_eq!((adopted.lease(), adopted.token()), (&lease, token));
    assert!(!adopted.is_fresh());
    tokio::time::sleep(secs(60)).await;
    assert!(adopted.verify().await.unwrap(), "renewed by the one who adopted it");
    adopted.release().await.unwrap();
    let error = store.locks().adopt(lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn acquire_or_renew_continues_or_acquires_again_and_reports_which() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = locks.lock("k").ttl(secs(10)).await.unwrap().detach();
    let guard = locks.acquire_or_renew(lease.clone()).await.unwrap();
    assert!(!guard.is_fresh());
    assert_eq!(guard.lease().id, lease.id);
    let lease = guard.detach();
    tokio::time::sleep(secs(11)).await;
    store.on_renew([Fault::Unreachable]);
    let guard = locks.acquire_or_renew(lease.clone()).await.unwrap();
    assert!(guard.is_fresh());
    assert_ne!(guard.lease().id, lease.id, "an ended lease's id is never used again");
    assert!(guard.token() > lease.token);
    assert_eq!(guard.lease().ttl, lease.ttl);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_lease_is_adopted_renewed_and_released() {
    let store = Flaky::new();
    let locks = store.locks();
    let first = store.others().lock("k").lease_id("php-worker").ttl(secs(20)).await.unwrap();
    let mut lease = first.detach();
    lease.token = None;
    assert_eq!(lease.id, LeaseId::foreign(b"php-worker").unwrap());
    let guard = locks.adopt(lease).await.unwrap();
    assert!(matches!(guard.renew().await.unwrap(), Remaining::For(left) if left > secs(19)));
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Released));
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_one_lease_with_one_token() {
    let store = Flaky::new();
    let locks = store.locks();
    let one = locks.lock("b").await.unwrap();
    let before = one.token().unwrap();
    one.release().await.unwrap();
    let all = locks.lock_all(["c", "a", "b", "a"]).await.unwrap();
    assert_eq!(all.lease().claims.keys().map(Key::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(all.token().unwrap() > before);
    assert!(locks.try_lock("b").await.unwrap().is_none());
    all.release().await.unwrap();
    let other = taken(&store, "b", secs(60)).await;
    assert_eq!(
        locks.lock_all(["a", "b"]).wait(Wait::No).await.unwrap_err().kind(),
        ErrorKind::Held
    );
    assert!(store.is_free("a").await, "all or none");
    drop(other);
    let mixed = Claims::new([
        Claim { key: Key::new("x").unwrap(), mode: Mode::Exclusive },
        Claim { key: Key::new("y").unwrap(), mode: Mode::SHARED },
    ]);
    let mixed = locks.lock_claims(mixed.unwrap()).await.unwrap();
    assert!(locks.lock("y").shared().wait(Wait::No).await.is_ok());
    assert!(locks.lock("x").shared().wait(Wait::No).await.is_err());
    drop(mixed);
}

#[tokio::test(start_paused = true)]
async fn a_group_acts_on_the_leases_that_this_locker_holds_in_it() {
    let store = Flaky::new();
    let locks = store.locks();
    let group = locks.group("job-7").unwrap();
    let a = group.lock("a").await.unwrap();
    let b = group.lock_all(["b", "c"]).await.unwrap();
    let foreign = store.others().lock("d").group("job-7").await.unwrap();
    let apart = locks.lock("e").await.unwrap();
    assert!(group.try_lock("a").await.unwrap().is_none(), "a group is no identity");
    assert_eq!(group.leases().len(), 2);
    assert_eq!(group.list().await.unwrap().records.len(), 4);
    assert!(group.renew().await.iter().all(|(_, outcome)| outcome.is_ok()));
    let ended = group.release().await;
    let ids: Vec<_> = ended.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids, [b.lease().id.clone(), a.lease().id.clone()], "newest first");
    assert!(ended.iter().all(|(_, report)| matches!(report.outcome, ReleaseOutcome::Released)));
    assert!(!a.is_held() && !b.is_held());
    assert!(foreign.verify().await.unwrap() && apart.verify().await.unwrap());
    assert!(matches!(a.release().await.unwrap().outcome, ReleaseOutcome::NotHeld));
}

#[tokio::test(start_paused = true)]
async fn a_failed_group_release_continues_in_the_background() {
    let store = Flaky::new();
    let locks = store.locks();
    let group = locks.group("o").unwrap();
    let _guards = (group.lock("a").await.unwrap(), group.lock("b").await.unwrap());
    store.on_release([Fault::LostRequest]);
    let ended = group.release().await;
    let failed = |o: &ReleaseOutcome| matches!(o, ReleaseOutcome::Failed(e) if e.effect() == Effect::Unknown);
    assert!(
        ended.len() == 2 && ended.iter().all(|(_, report)| failed(&report.outcome)),
        "{ended:?}"
    );
    store.until_free("a").await;
    store.until_free("b").await;
}

#[tokio::test(start_paused = true)]
async fn status_and_list_show_held_keys() {
    let store = Flaky::new();
    let locks = store.locks();
    assert!(!locks.is_held("k").await.unwrap());
    let guard = locks.lock("k").host("db-3").comment("why").group("me").await.unwrap();
    let status = locks.status("k").await.unwrap();
    assert_eq!(status.len(), 1);
    assert_eq!(status[0].id.as_ref(), Some(&guard.lease().id));
    assert_eq!(status[0].note.host(), Some("db-3"));
    assert_eq!(status[0].note.comment(), Some("why"));
    assert_eq!(status[0].note.pid(), Some(std::process::id()));
    assert!(locks.is_held("k").await.unwrap());
    assert_eq!(locks.status("").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(locks.lock("l").host("").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn close_refuses_new_locks_and_waits_for_dropped_guards() {
    let store = Flaky::new();
    let locks = store.locks();
    let kept = locks.lock("kept").await.unwrap();
    let guard = locks.lock("k").await.unwrap();
    store.on_release([Fault::SlowRequest(secs(2))]);
    drop(guard);
    let before = store.now();
    locks.close(secs(10)).await.unwrap();
    assert_eq!(store.now() - before, secs(2));
    assert!(store.is_free("k").await && kept.is_held());
    assert_eq!(locks.lock("x").await.unwrap_err().kind(), ErrorKind::Closed);

    let locks = store.locks();
    let guard = locks.lock("k").await.unwrap();
    store.down(Fault::Hung);
    drop(guard);
    let error = locks.close(secs(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
}

#[tokio::test(start_paused = true)]
async fn the_store_is_checked_once_at_first_use() {
    let store = Flaky::new();
    let locks = store.locks();
    assert_eq!(locks.level(), leasehold::Level::BestEffort);
    for _ in 0..3 {
        locks.lock("k").await.unwrap().release().await.unwrap();
    }
    assert_eq!(locks.level(), leasehold::Level::Fenced);
    assert_eq!(store.log().iter().filter(|sent| **sent == Sent::Check).count(), 1);
}

#[tokio::test]
async fn documents_and_the_error_for_an_unknown_scheme_name_every_store() {
    let error = Locker::connect("nope://x").await.unwrap_err().to_string();
    let rustdoc = include_str!("../../src/connect.rs");
    for kind in STORES {
        let scheme = kind.url().split(':').next().unwrap();
        assert!(error.contains(scheme), "{kind}: {error}");
        let (url, about, feature) = (kind.url(), kind.about(), kind.feature());
        assert!(rustdoc.contains(&format!("| `{url}` | {about} | `{feature}` |")), "{kind}");
        for page in
            [include_str!("../../../../README.md"), include_str!("../../../../docs/STORES.md")]
        {
            assert!(page.contains(&format!("`{url}`")), "{kind}");
        }
    }
}

#[tokio::test]
async fn connect_accepts_its_schemes_and_refuses_others() {
    let locks = Locker::connect("local:").await.unwrap();
    let guard = locks.lock("connect-test").await.unwrap();
    let same = Locker::connect("local:").await.unwrap();
    assert!(same.try_lock("connect-test").await.unwrap().is_none(), "one store a process");
    drop(guard);
    for (url, fragment) in [
        ("nope://x", "\"nope\" is not known here"),
        ("nope://x", "this build knows postgres, redis"),
        ("local:x", "nothing after it"),
        ("local:?timeout=1s", "unknown option \"timeout\""),
        ("locks.db", "has no scheme"),
    ] {
        let error = Locker::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fragment), "{error}");
    }
}

/// How many releases were sent.
fn releases(store: &Flaky) -> usize {
    store.log().iter().filter(|sent| matches!(sent, Sent::Release(_))).count()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_releases_that_fail_are_sent_again_together() {
    let store = Flaky::new();
    let locks = store.locks();
    let mut guards = Vec::new();
    for n in 0..1_000 {
        guards.push(locks.lock(format!("k{n}").as_str()).ttl(secs(600)).await.unwrap());
    }
    store.down(Fault::Unreachable);
    for guard in guards {
        drop(guard);
        tokio::time::sleep(ms(10)).await;
    }
    let at_once = releases(&store);
    assert!((1_000..1_020).contains(&at_once), "each once, and a few together: {at_once}");
    tokio::time::sleep(secs(15)).await;
    let later = releases(&store) - at_once;
    assert!((3..10).contains(&later), "all in one request each time: {later}");
    store.up();
    locks.close(secs(10)).await.unwrap();
    assert!(store.is_free("k0").await && store.is_free("k999").await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_end_is_released_until_close_or_a_final_refusal() {
    let store = Flaky::new();
    let locks = store.locks();
    let refused = locks.lock("refused").ttl(Ttl::NEVER).await.unwrap();
    store.on_release([Fault::Denied]);
    drop(refused);
    tokio::time::sleep(secs(600)).await;
    assert_eq!(releases(&store), 1);

    let guard = locks.lock("k").ttl(Ttl::NEVER).await.unwrap();
    store.down(Fault::Unreachable);
    drop(guard);
    tokio::time::sleep(secs(600)).await;
    let before = releases(&store);
    assert!(before > 100, "{before}");
    assert!(locks.close(secs(1)).await.is_err());
    let before = releases(&store);
    tokio::time::sleep(secs(600)).await;
    assert_eq!(releases(&store), before);
}
