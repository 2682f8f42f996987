//! Batches of callers whose runtimes end, or that nobody drives.

use futures_util::FutureExt as _;

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn sends(batches: &Batches<Fake>, number: u32) {
    batches.0.server.let_through.add_permits(100);
    let long = std::time::Duration::from_secs(30);
    let sent = tokio::time::timeout(long, request("acquire", "k", number)(batches)).await;
    assert_eq!(sent.unwrap().unwrap().unwrap(), number);
}

#[test]
fn a_runtime_that_ends_stops_nobody() {
    let (batches, ends) = (batches(), runtime());
    let first = {
        let _inside = ends.enter();
        request("acquire", "k", 0)(&batches)
    };
    ends.block_on(tokio::task::yield_now());
    drop(ends);
    runtime().block_on(async {
        let error = first.await.unwrap().unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown);
        sends(&batches, 1).await;
    });
}

#[test]
fn a_runtime_that_had_ended_stops_nobody() {
    let (batches, ended) = (batches(), runtime());
    let handle = ended.handle().clone();
    drop(ended);
    let first = {
        let _inside = handle.enter();
        request("acquire", "k", 0)(&batches)
    };
    runtime().block_on(async {
        sends(&batches, 1).await;
        assert_eq!(first.await.unwrap().unwrap(), 0);
    });
}

#[test]
fn a_runtime_that_nobody_drives_stops_nobody() {
    let (batches, undriven) = (batches(), runtime());
    let mut first = {
        let _inside = undriven.enter();
        request("acquire", "k", 0)(&batches)
    };
    runtime().block_on(async {
        batches.0.server.let_through.add_permits(100);
        assert!((&mut first).now_or_never().is_none());
        batches.pass(Duration::ZERO);
        assert_eq!(first.await.unwrap().unwrap(), 0);
        sends(&batches, 1).await;
    });
}
/// A request that was sent from a runtime that nobody drives since.
fn left_behind(limit: Duration) -> (tokio::runtime::Runtime, Batches<Fake>, Call) {
    let (batches, undriven) = (batches_with(3, 1, limit), runtime());
    let first = {
        let _inside = undriven.enter();
        request("acquire", "k", STALLS)(&batches)
    };
    undriven.block_on(tokio::task::yield_now());
    assert_eq!(sent(&batches).len(), 1);
    batches.0.server.let_through.add_permits(100);
    (undriven, batches, first)
}

#[test]
fn a_runtime_that_nobody_drives_keeps_its_keys_until_it_must_have_been_answered() {
    let (_undriven, batches, _first) = left_behind(LONG);
    runtime().block_on(async {
        let (mut same, other) = (request_of("k")(&batches), request_of("l")(&batches));
        batches.pass(Duration::ZERO);
        assert_eq!(other.await.unwrap().unwrap(), 0);
        assert!((&mut same).now_or_never().is_none());
        assert_eq!(sent(&batches)[1..], ["acquire l 0"]);
    });
}

#[test]
fn a_runtime_that_nobody_drove_for_long_sends_nothing_more() {
    let (undriven, batches, first) = left_behind(Duration::ZERO);
    runtime().block_on(async {
        let same = request_of("k")(&batches);
        batches.pass(Duration::ZERO);
        assert_eq!(same.await.unwrap().unwrap(), 0);
    });
    // Its reply is there, but its task sees first that it was given up.
    batches.0.server.let_stalled.add_permits(1);
    let error = undriven.block_on(first).unwrap().unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(batches.0.server.let_stalled.available_permits(), 1);
}
