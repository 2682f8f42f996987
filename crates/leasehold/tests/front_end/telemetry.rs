//! F12: what is counted, under which labels, and what is logged.

use crate::support::log::logged;
use crate::support::{Fault, Flaky, secs};
use leasehold::{Keepalive, Wait};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

#[test]
fn attempts_waits_holds_renewals_and_losses_are_counted_by_store_and_label() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = Flaky::new();
            let locks = store.locks();
            let guard = locks.lock("secret-key").label("reports").ttl(secs(9)).await.unwrap();
            let again = locks.lock("secret-key").label("reports").wait(Wait::No).await;
            assert!(again.is_err());
            store.on_renew([Fault::Fine, Fault::Refused]);
            tokio::time::sleep(secs(5)).await;
            guard.release().await.unwrap();
            let brief = locks.lock("k").ttl(secs(1)).keepalive(Keepalive::Off).await.unwrap();
            brief.lost().await;
        });
    });
    let snapshot = snapshotter.snapshot().into_vec();
    for (key, unit, description, _) in &snapshot {
        assert!(unit.is_some() && description.is_some(), "{key:?} is not described");
    }
    let lines: Vec<(String, DebugValue)> = snapshot
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> =
                key.key().labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            (format!("{} {}", key.key().name(), labels.join(",")), value)
        })
        .collect();
    let count = |line: &str| {
        let found = lines.iter().find(|(name, _)| name == line);
        match found {
            Some((_, DebugValue::Counter(count))) => *count,
            Some((_, DebugValue::Histogram(values))) => values.len() as u64,
            _ => panic!("{line} is not among {lines:?}"),
        }
    };
    assert_eq!(count("leasehold_attempts_total store=local,label=reports,outcome=granted"), 1);
    assert_eq!(count("leasehold_attempts_total store=local,label=reports,outcome=refused"), 1);
    assert_eq!(count("leasehold_wait_seconds store=local,label=reports,outcome=granted"), 1);
    assert_eq!(count("leasehold_wait_seconds store=local,label=reports,outcome=held"), 1);
    assert_eq!(count("leasehold_hold_seconds store=local,label=reports"), 1);
    assert_eq!(count("leasehold_renewals_total store=local,label=reports,outcome=held"), 1);
    assert_eq!(count("leasehold_losses_total store=local,label=,reason=expired"), 1);
    assert!(!format!("{lines:?}").contains("secret-key"), "a key is never a label");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_begin_to_fail_are_one_warning_with_the_key() {
    let log = logged("logged-key");
    let store = Flaky::new();
    let locks = store.locks();
    let names: Vec<_> = (0..10).map(|n| format!("logged-key-{n}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name.as_str()).ttl(secs(30)).await.unwrap());
    }
    store.down(Fault::Refused);
    tokio::time::sleep(secs(15)).await;
    let warnings = |what: &str| {
        let is_one = |line: &&String| line.contains("WARN") && line.contains(what);
        log().iter().filter(is_one).count()
    };
    assert_eq!(warnings("renewals fail store"), 1, "{:?}", log());
    store.up();
    tokio::time::sleep(secs(15)).await;
    assert!(guards.iter().all(leasehold::Guard::is_held));
    store.down(Fault::Refused);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(warnings("renewals fail store"), 2, "{:?}", log());
    assert_eq!(warnings("a lease is lost"), 10, "each with its key: {:?}", log());
}
