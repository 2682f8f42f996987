//! Which requests are sent together, and when.

use std::collections::HashSet;

use super::*;

/// Sends these while the first is under way, in this order, and returns the batches.
async fn sent_in_batches(requests: Vec<Enters>) -> (Vec<Vec<String>>, Vec<Option<u32>>) {
    let batches = batches();
    let calls = enter(&batches, requests).await;
    batches.0.server.let_through.add_permits(100);
    let mut replies = Vec::new();
    for call in calls {
        replies.push(call.await.map(|reply| reply.unwrap()));
    }
    let sent = batches.0.server.sent.lock().unwrap().clone();
    (sent, replies)
}

#[tokio::test]
async fn what_arrives_meanwhile_is_sent_together_each_key_once_and_each_kind_apart() {
    let (sent, replies) = sent_in_batches(vec![
        request("acquire", "first", 0),
        request("acquire", "z", 1),
        request("acquire", "b", 2),
        request("release", "b", 3),
        request("acquire", "b", 4),
        request("acquire", "c", 5),
        request("acquire", "d", 6),
        request("release", "c", 7),
    ])
    .await;
    let expected: [&[&str]; 4] = [
        &["acquire first 0"],
        &["acquire b 2", "acquire c 5", "acquire z 1"],
        &["release b 3", "release c 7"],
        &["acquire b 4", "acquire d 6"],
    ];
    assert_eq!(sent, expected);
    assert_eq!(replies, (0..8).map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn where_many_wait_two_batches_are_under_way_and_no_key_is_in_both() {
    let batches = batches_of(1_000, 2);
    let many =
        |of: &str| (0..MANY).map(move |n| request_of(&format!("{of}{n:02}"))).collect::<Vec<_>>();
    let sent = || batches.0.server.sent.lock().unwrap().clone();
    let mut calls =
        enter(&batches, [request("acquire", "same", 0), request("acquire", "same", 1)]).await;
    calls.extend(enter(&batches, many("x")).await);
    let acquires =
        |of: &str| (0..MANY).map(|n| format!("acquire {of}{n:02} 0")).collect::<Vec<_>>();
    assert_eq!(sent(), [vec!["acquire same 0".to_owned()], acquires("x")]);
    calls.extend(enter(&batches, many("y")).await);
    assert_eq!(sent().len(), 2);
    batches.0.server.let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let third: Vec<_> = std::iter::once("acquire same 1".to_owned()).chain(acquires("y")).collect();
    let of_third: HashSet<_> = sent()[2..].concat().into_iter().collect();
    assert_eq!(of_third, third.into_iter().collect());
}

#[tokio::test]
async fn few_that_wait_are_sent_in_one_batch_at_a_time() {
    let batches = batches_of(1_000, 2);
    let calls = enter(&batches, (0..MANY).map(|n| request_of(&format!("k{n}")))).await;
    assert_eq!(batches.0.server.sent.lock().unwrap().len(), 1);
    batches.0.server.let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(batches.0.server.sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_enters_at_once_is_sent_in_as_few_batches_as_it_can() {
    for (count, lengths) in
        [(40, vec![40]), (120, vec![60, 60]), (400, vec![400]), (2_000, vec![1_000, 1_000])]
    {
        let batches = batches_of(1_000, 2);
        let turns = batches.enter((0..count).map(|n| sent_by(acquire(&format!("k{n:04}"), n))));
        batches.0.server.let_through.add_permits(100);
        for mut turn in turns {
            assert!(matches!(turn.outcome().await, Outcome::Done(Ok(_))));
        }
        let sent = batches.0.server.sent.lock().unwrap();
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
    }
}

#[tokio::test]
async fn a_skipped_member_is_for_its_caller_to_send() {
    let (_, replies) = sent_in_batches(vec![
        request("acquire", "x", 0),
        request("release", "y", SKIPPED),
        request("release", "z", SKIPPED),
    ])
    .await;
    assert_eq!(replies, [Some(0), None, None]);
}

#[tokio::test]
async fn a_request_is_sent_although_its_caller_has_gone() {
    let batches = batches();
    for number in 0..3 {
        drop(request("acquire", "k", number)(&batches));
    }
    batches.0.server.let_through.add_permits(100);
    assert_eq!(request("acquire", "k", 3)(&batches).await.unwrap().unwrap(), 3);
    assert_eq!(batches.0.server.sent.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_request_that_was_taken_back_is_never_sent() {
    let batches = batches();
    let mut turns = batches.enter([0, 1].map(|n| sent_by(acquire("k", n))));
    tokio::task::yield_now().await;
    let (sent_one, waiting) = (turns.next().unwrap(), turns.next().unwrap());
    assert!(waiting.withdraw());
    assert!(!sent_one.withdraw());
    batches.0.server.let_through.add_permits(100);
    assert_eq!(request("acquire", "k", 2)(&batches).await.unwrap().unwrap(), 2);
    assert_eq!(sent(&batches), ["acquire k 0", "acquire k 2"]);
}
