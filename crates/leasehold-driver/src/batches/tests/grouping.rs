//! Which requests are sent together, and when.

use std::collections::HashSet;

use futures_util::future::{join, join3};

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
async fn what_arrives_meanwhile_is_sent_together_each_key_once_and_renewals_apart() {
    let (sent, replies) = sent_in_batches(vec![
        request("acquire", "first", 0),
        request("release", "z", 1),
        request("acquire", "b", 2),
        request("release", "b", 3),
        request("acquire", "b", 4),
        request("renew", "c", 5),
        request("acquire", "d", 6),
        request("release", "c", 7),
        request("acquire", "a", 8),
    ])
    .await;
    let expected: [&[&str]; 6] = [
        &["acquire first 0"],
        &["acquire b 2", "acquire d 6", "release z 1"],
        &["acquire a 8", "release b 3"],
        &["acquire b 4"],
        &["renew c 5"],
        &["release c 7"],
    ];
    assert_eq!(sent, expected);
    assert_eq!(replies, (0..9).map(Some).collect::<Vec<_>>());
}

/// A caller has a twentieth of the time that its batch took, however often others run meanwhile. On a busy machine that may be
/// over first.
#[tokio::test(start_paused = true)]
async fn callers_that_were_answered_send_their_next_requests_in_the_next_batch() {
    let all = "acquire waits 0, release a 1, release b 1";
    for _ in 0..50 {
        if third_batch().await == all {
            return;
        }
    }
    panic!("{}", third_batch().await);
}

async fn third_batch() -> String {
    let batches = batches_of(1_000, 1);
    let mut calls = enter(&batches, [request_of("first"), request_of("a"), request_of("b")]).await;
    let let_through = || batches.0.server.let_through.add_permits(1);
    let_through();
    calls.remove(0).await.unwrap().unwrap();
    until_sent(&batches, 2).await;
    let waits = enter(&batches, [request_of("waits")]).await;
    tokio::time::advance(Duration::from_millis(20)).await;
    let_through();
    let again = calls.into_iter().zip(["a", "b"]).map(async |(call, key)| {
        call.await.unwrap().unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        request("release", key, 1)(&batches).await.unwrap().unwrap()
    });
    let third = async {
        until_sent(&batches, 3).await;
        batches.0.server.let_through.add_permits(100);
    };
    join(join_all(again), third).await;
    join_all(waits).await;
    sent(&batches).remove(2)
}

async fn until_sent(batches: &Batches<Fake>, count: usize) {
    for _ in 0..1_000_000 {
        if sent(batches).len() >= count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}", sent(batches));
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

#[tokio::test(start_paused = true)]
async fn where_a_disk_is_fast_another_kind_is_sent_at_once_and_in_batches_of_its_own() {
    let batches = batches_of(1_000, 2);
    let lanes = || batches.0.queue().lanes.len();
    let mut calls = enter(&batches, [request_of("a")]).await;
    let mut call = |kind, key| calls.push(request(kind, key, 0)(&batches));
    call("release", "a");
    assert_eq!(lanes(), 1, "it waits for the answer about its key");
    call("acquire", "b");
    assert_eq!(lanes(), 1, "it waits for the batch of its kind");
    call("release", "b");
    assert_eq!(lanes(), 1, "it waits for what was sent before it about its key");
    call("release", "c");
    assert_eq!(lanes(), 2);
    call("renew", "d");
    call("release", "e");
    call("acquire", "f");
    assert_eq!(lanes(), 2, "no more than two");
    until_sent(&batches, 2).await;
    batches.0.server.let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected = [
        "acquire a 0",
        "release c 0, release e 0",
        "acquire b 0, acquire f 0",
        "renew d 0",
        "release a 0, release b 0",
    ];
    let sent: HashSet<_> = sent(&batches).into_iter().collect();
    assert_eq!(sent, expected.map(str::to_owned).into());
}

#[tokio::test(start_paused = true)]
async fn kinds_that_arrive_at_once_are_sent_at_once() {
    let batches = batches_of(1_000, 2);
    let acquires = request("acquire", "a", 0)(&batches);
    let releases = request("release", "b", 0)(&batches);
    assert_eq!(batches.0.queue().lanes.len(), 1, "it has not chosen yet what it sends");
    until_sent(&batches, 2).await;
    batches.0.server.let_through.add_permits(100);
    assert_eq!(join(acquires, releases).await.0.unwrap().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_a_disk_is_slow_acquires_and_releases_share_a_batch() {
    let batches = batches_of(1_000, 2);
    let mut calls = enter(&batches, [request_of("a")]).await;
    tokio::time::advance(Duration::from_millis(3)).await;
    calls.extend(enter(&batches, [request_of("b")]).await);
    batches.0.server.let_through.add_permits(1);
    until_sent(&batches, 2).await;
    calls.extend(enter(&batches, [request("release", "c", 0), request_of("d")]).await);
    assert_eq!(sent(&batches), ["acquire a 0", "acquire b 0"]);
    calls.extend(enter(&batches, [request("renew", "e", 0)]).await);
    assert_eq!(sent(&batches)[2..], ["renew e 0"], "renewals wait for no others");
    tokio::time::advance(Duration::from_millis(3)).await;
    batches.0.server.let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(sent(&batches)[3..], ["acquire d 0, release c 0"]);
}

/// A renewal beside them would otherwise divide them. On a busy machine their time may be over first.
#[tokio::test(start_paused = true)]
async fn where_a_disk_is_slow_a_renewal_does_not_divide_those_that_come_again() {
    for _ in 0..50 {
        if lengths_beside_a_renewal().await == [1, 10, 1, 10] {
            return;
        }
    }
    panic!("{:?}", lengths_beside_a_renewal().await);
}

async fn lengths_beside_a_renewal() -> Vec<usize> {
    let batches = batches_of(1_000, 2);
    let let_through = async |count| {
        tokio::time::advance(Duration::from_millis(20)).await;
        batches.0.server.let_through.add_permits(count);
    };
    let names: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    let mut calls = enter(&batches, [request_of("first")]).await;
    calls.extend(enter(&batches, names.iter().map(|name| request_of(name))).await);
    let_through(1).await;
    until_sent(&batches, 2).await;
    let renewal = enter(&batches, [request("renew", "r", 0)]).await;
    until_sent(&batches, 3).await;
    let_through(1).await;
    join_all(calls).await;
    let release = |name: &String| request("release", name, 1)(&batches);
    let mut again: Vec<_> = names[..5].iter().map(release).collect();
    batches.0.server.let_through.add_permits(1);
    join_all(renewal).await;
    again.extend(names[5..].iter().map(release));
    batches.0.server.let_through.add_permits(100);
    join_all(again).await;
    let sent = batches.0.server.sent.lock().unwrap();
    sent.iter().map(Vec::len).collect()
}

/// A second batch would be small, and wait for the disk as long.
#[tokio::test(start_paused = true)]
async fn callers_that_come_again_stay_in_one_batch_if_the_last_one_took_long() {
    let (lengths, lanes) = sent_after(Duration::from_millis(3)).await;
    assert_eq!((lengths, lanes), (vec![1, MANY, MANY + MANY / 2], 1));
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_again_get_a_second_batch_if_the_last_one_was_quick() {
    // Without the work for its requests it is below the limit.
    assert_eq!(sent_after(Duration::from_micros(2_350)).await.1, 2);
}

/// How many are sent each time if the first batches take so long, and the most batches under way.
async fn sent_after(took: Duration) -> (Vec<usize>, usize) {
    let batches = batches_of(1_000, 2);
    let let_through = async || {
        tokio::time::advance(took).await;
        batches.0.server.let_through.add_permits(1);
    };
    let names: Vec<_> = (0..MANY).map(|n| format!("again{n}")).collect();
    let mut calls = enter(&batches, [request_of("first")]).await;
    calls.extend(enter(&batches, names.iter().map(|name| request_of(name))).await);
    let_through().await;
    calls.remove(0).await.unwrap().unwrap();
    until_sent(&batches, 2).await;
    let waits = enter(&batches, (0..MANY / 2).map(|n| request_of(&format!("waits{n}")))).await;
    let_through().await;
    let again = calls.into_iter().zip(&names).map(async |(call, name)| {
        call.await.unwrap().unwrap();
        let next = request("release", name, 1)(&batches);
        let lanes = batches.0.queue().lanes.len();
        next.await.unwrap().unwrap();
        lanes
    });
    let others = async {
        until_sent(&batches, 3).await;
        batches.0.server.let_through.add_permits(100);
    };
    let (lanes, ..) = join3(join_all(again), join_all(waits), others).await;
    let sent = batches.0.server.sent.lock().unwrap();
    (sent.iter().map(Vec::len).collect(), lanes.into_iter().max().unwrap())
}

/// Else each of the two would wait for the other, for ever.
#[tokio::test(start_paused = true)]
async fn two_small_batches_that_take_long_become_one() {
    let batches = batches_of(1_000, 2);
    let names: Vec<_> = (0..3 * MANY).map(|n| format!("k{n:03}")).collect();
    let turns = batches.enter(names.iter().map(|name| sent_by(acquire(name, 0))));
    until_sent(&batches, 2).await;
    tokio::time::advance(Duration::from_millis(4)).await;
    let again = turns.enumerate().map(async |(at, mut turn)| {
        let answered = turn.outcome().await;
        assert!(matches!(answered, Outcome::Done(Ok(_))));
        // Half of each batch.
        if at % MANY < MANY / 2 {
            request("release", &names[at], 1)(&batches).await.unwrap().unwrap();
        }
    });
    let others = async {
        batches.0.server.let_through.add_permits(1);
        // Those of the first are too few for a batch beside the second.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            if batches.0.queue().lanes.len() == 1 {
                break;
            }
        }
        batches.0.server.let_through.add_permits(100);
    };
    join(join_all(again), others).await;
    let sent = batches.0.server.sent.lock().unwrap();
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [60, 60, 60]);
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

/// A request in a batch that went alone too would act twice, the second time for nobody.
#[tokio::test]
async fn a_request_that_enters_a_batch_does_not_go_alone_too() {
    let batches = batches();
    batches.0.server.let_through.add_permits(1);
    let asked = AtomicUsize::new(0);
    let changes = |_: &AcquireRequest| asked.fetch_add(1, Ordering::Relaxed) == 0;
    let alone = |_| async { Err(Error::unexpected("it went alone")) };
    let replies = batches.carry_out([acquire("a", 7)], Deadline::after(LONG), changes, alone).await;
    assert!(matches!(replies[..], [Ok(AcquireReply::Granted(_))]), "{replies:?}");
}
