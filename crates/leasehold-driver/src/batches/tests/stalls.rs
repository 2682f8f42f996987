//! What goes past a batch that stalls.

use super::*;

/// Sends these while a request stalls, for as long as nothing more is sent.
async fn past(stalls: Enters, requests: Vec<Enters>) -> (Batches<Fake>, Vec<Call>) {
    let batches = batches();
    batches.0.server.let_through.add_permits(100);
    let requests = std::iter::once(stalls).chain(requests);
    let calls = enter(&batches, requests).await;
    assert_eq!(sent(&batches).len(), 1);
    batches.pass(LONG);
    for _ in 0..20 {
        assert_eq!(sent(&batches).len(), 1, "it has not stalled for so long");
        tokio::task::yield_now().await;
    }
    batches.pass(Duration::ZERO);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    (batches, calls)
}

#[tokio::test]
async fn others_go_past_a_batch_that_stalls_and_what_is_for_its_keys_waits() {
    let (batches, calls) = past(
        request("acquire", "k", STALLS),
        vec![
            request("release", "k", 1),
            request("release", "l", 2),
            request("renew", "k", 3),
            request("renew", "m", 4),
        ],
    )
    .await;
    assert_eq!(sent(&batches), [&format!("acquire k {STALLS}"), "release l 2", "renew m 4"]);
    batches.0.server.let_stalled.add_permits(1);
    for (number, call) in [STALLS, 1, 2, 3, 4].into_iter().zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), number);
    }
    assert_eq!(sent(&batches)[3..], ["release k 1", "renew k 3"]);
    // Asked for once, not each time that somebody goes past.
    assert_eq!(batches.0.server.retired.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_may_pass_a_stalling_request_of_its_key_does() {
    let (batches, _calls) = past(
        request("renew", "k", STALLS),
        vec![request("renew", "k", 1), request("release", "k", 2), request("renew", "k", 3)],
    )
    .await;
    // The last one waits behind the release.
    assert_eq!(sent(&batches), [&format!("renew k {STALLS}"), "renew k 1"]);
}

#[tokio::test]
async fn while_batches_stall_there_is_one_lane_more() {
    let (batches, mut calls) =
        past(request("acquire", "k", STALLS), vec![request("acquire", "l", STALLS)]).await;
    assert_eq!(sent(&batches).len(), 2);
    calls.extend(enter(&batches, [request_of("m")]).await);
    for _ in 0..20 {
        batches.pass(Duration::ZERO);
        tokio::task::yield_now().await;
    }
    assert_eq!(sent(&batches).len(), 2);
    batches.0.server.let_stalled.add_permits(1);
    assert_eq!(calls.remove(2).await.unwrap().unwrap(), 0);
}
