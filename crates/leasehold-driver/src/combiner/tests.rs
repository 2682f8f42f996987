use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use leasehold_core::Key;
use tokio::sync::Semaphore;

use super::*;

/// Keeps what it sends, and replies when it is let.
struct Fake {
    let_through: Semaphore,
    /// Likewise for requests with the number [`STALLS`].
    let_stalled: Semaphore,
    sent: Mutex<Vec<Vec<String>>>,
    limit: Duration,
    distrusted: AtomicUsize,
}

const STALLS: u32 = u32::MAX;
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Request(&'static str, Key, u32);

fn request(kind: &'static str, key: &str, number: u32) -> Request {
    Request(kind, Key::new(key).unwrap(), number)
}

fn request_of(key: &str) -> Request {
    request("a", key, 0)
}

impl Fake {
    async fn note(&self, requests: &[Request]) {
        let said =
            requests.iter().map(|Request(kind, key, number)| format!("{kind} {key} {number}"));
        self.sent.lock().unwrap().push(said.collect());
        let stalls = requests.iter().any(|request| request.2 == STALLS);
        let gate = if stalls { &self.let_stalled } else { &self.let_through };
        gate.acquire().await.unwrap().forget();
    }
}

impl Combine for Fake {
    type Request = Request;
    type Reply = u32;
    type Kind = &'static str;

    fn kind(request: &Request) -> &'static str {
        request.0
    }

    fn key(request: &Request) -> &Key {
        &request.1
    }

    fn may_pass(request: &Request, earlier: &Request) -> bool {
        request.0 == "renew" && earlier.0 == "renew"
    }

    fn limit(&self) -> Duration {
        self.limit
    }

    fn distrust(&self) {
        self.distrusted.fetch_add(1, Ordering::Relaxed);
    }

    async fn send(&self, request: &Request) -> Option<Result<u32>> {
        self.note(std::slice::from_ref(request)).await;
        Some(Ok(request.2))
    }

    async fn send_together(&self, requests: &[Request]) -> Vec<Option<Result<u32>>> {
        self.note(requests).await;
        requests.iter().map(|request| (request.0 != "skipped").then_some(Ok(request.2))).collect()
    }
}

fn combiner() -> Combiner<Fake> {
    combiner_of(3, 1)
}

fn combiner_of(most: usize, lanes: usize) -> Combiner<Fake> {
    combiner_with(most, lanes, LONG)
}

fn combiner_with(most: usize, lanes: usize, limit: Duration) -> Combiner<Fake> {
    let fake = Fake {
        let_through: Semaphore::new(0),
        let_stalled: Semaphore::new(0),
        sent: Mutex::default(),
        limit,
        distrusted: AtomicUsize::new(0),
    };
    Combiner::new(fake, most, lanes)
}

type Call = Pin<Box<dyn Future<Output = Option<Result<u32>>> + Send>>;

fn call(combiner: &Combiner<Fake>, request: Request) -> Call {
    let mut turn = combiner.enter([request]).next().unwrap();
    Box::pin(async move { turn.reply().await })
}

/// Sends these, in this order.
async fn enter(
    combiner: &Combiner<Fake>,
    requests: impl IntoIterator<Item = Request>,
) -> Vec<Call> {
    let mut calls = Vec::new();
    for request in requests {
        calls.push(call(combiner, request));
        tokio::task::yield_now().await;
    }
    calls
}

/// Sends these while the first is under way, in this order, and returns the batches.
async fn batches(requests: Vec<Request>) -> (Vec<Vec<String>>, Vec<Option<u32>>) {
    let combiner = combiner();
    let calls = enter(&combiner, requests).await;
    combiner.combine().let_through.add_permits(100);
    let mut replies = Vec::new();
    for call in calls {
        replies.push(call.await.map(|reply| reply.unwrap()));
    }
    let sent = combiner.combine().sent.lock().unwrap().clone();
    (sent, replies)
}

#[tokio::test]
async fn what_arrives_meanwhile_travels_together_each_key_once_and_each_kind_apart() {
    let (sent, replies) = batches(vec![
        request("a", "first", 0),
        request("a", "z", 1),
        request("a", "b", 2),
        request("r", "b", 3),
        request("a", "b", 4),
        request("a", "c", 5),
        request("a", "d", 6),
        request("r", "c", 7),
    ])
    .await;
    let expected: [&[&str]; 4] =
        [&["a first 0"], &["a b 2", "a c 5", "a z 1"], &["r b 3", "r c 7"], &["a b 4", "a d 6"]];
    assert_eq!(sent, expected);
    assert_eq!(replies, (0..8).map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn where_many_wait_two_batches_are_under_way_and_no_key_is_in_both() {
    let combiner = combiner_of(1_000, 2);
    let many =
        |of: &str| (0..MANY).map(move |n| request_of(&format!("{of}{n:02}"))).collect::<Vec<_>>();
    let sent = || combiner.combine().sent.lock().unwrap().clone();
    let mut calls = enter(&combiner, [request("a", "same", 0), request("a", "same", 1)]).await;
    calls.extend(enter(&combiner, many("x")).await);
    let said = |of: &str| (0..MANY).map(|n| format!("a {of}{n:02} 0")).collect::<Vec<_>>();
    assert_eq!(sent(), [vec!["a same 0".to_owned()], said("x")]);
    calls.extend(enter(&combiner, many("y")).await);
    assert_eq!(sent().len(), 2);
    combiner.combine().let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let third: Vec<_> = std::iter::once("a same 1".to_owned()).chain(said("y")).collect();
    let of_third: HashSet<_> = sent()[2..].concat().into_iter().collect();
    assert_eq!(of_third, third.into_iter().collect());
}

#[tokio::test]
async fn few_that_wait_travel_in_one_batch_at_a_time() {
    let combiner = combiner_of(1_000, 2);
    let calls = enter(&combiner, (0..MANY).map(|n| request_of(&format!("k{n}")))).await;
    assert_eq!(combiner.combine().sent.lock().unwrap().len(), 1);
    combiner.combine().let_through.add_permits(100);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(combiner.combine().sent.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_enters_at_once_travels_in_as_few_batches_as_it_can() {
    for (count, batches) in
        [(40, vec![40]), (120, vec![60, 60]), (400, vec![400]), (2_000, vec![1_000, 1_000])]
    {
        let combiner = combiner_of(1_000, 2);
        let turns = combiner.enter((0..count).map(|n| request_of(&format!("k{n:04}"))));
        combiner.combine().let_through.add_permits(100);
        for mut turn in turns {
            turn.reply().await.unwrap().unwrap();
        }
        let sent = combiner.combine().sent.lock().unwrap();
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), batches);
    }
}

#[tokio::test]
async fn a_skipped_member_is_for_its_caller_to_send() {
    let (_, replies) =
        batches(vec![request("a", "x", 0), request("skipped", "y", 1), request("skipped", "z", 2)])
            .await;
    assert_eq!(replies, [Some(0), None, None]);
}

#[tokio::test]
async fn a_request_is_sent_although_its_caller_has_gone() {
    let combiner = combiner();
    for number in 0..3 {
        drop(call(&combiner, request("a", "k", number)));
    }
    combiner.combine().let_through.add_permits(100);
    assert_eq!(call(&combiner, request("a", "k", 3)).await.unwrap().unwrap(), 3);
    assert_eq!(combiner.combine().sent.lock().unwrap().len(), 4);
}

/// What was sent, in text.
fn sent(combiner: &Combiner<Fake>) -> Vec<String> {
    combiner.combine().sent.lock().unwrap().iter().map(|batch| batch.join(", ")).collect()
}

/// Sends these while a request stalls, for as long as nothing more is sent.
async fn past(stalls: Request, requests: Vec<Request>) -> (Combiner<Fake>, Vec<Call>) {
    let combiner = combiner();
    combiner.combine().let_through.add_permits(100);
    let requests = std::iter::once(stalls).chain(requests);
    let calls = enter(&combiner, requests).await;
    assert_eq!(sent(&combiner).len(), 1);
    combiner.pass(LONG);
    for _ in 0..20 {
        assert_eq!(sent(&combiner).len(), 1, "it has not stalled for so long");
        tokio::task::yield_now().await;
    }
    combiner.pass(Duration::ZERO);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    (combiner, calls)
}

#[tokio::test]
async fn others_go_past_a_batch_that_stalls_and_what_is_for_its_keys_waits() {
    let (combiner, calls) = past(
        request("acquire", "k", STALLS),
        vec![
            request("release", "k", 1),
            request("release", "l", 2),
            request("renew", "k", 3),
            request("renew", "m", 4),
        ],
    )
    .await;
    assert_eq!(sent(&combiner), [&format!("acquire k {STALLS}"), "release l 2", "renew m 4"]);
    combiner.combine().let_stalled.add_permits(1);
    for (number, call) in [STALLS, 1, 2, 3, 4].into_iter().zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), number);
    }
    assert_eq!(sent(&combiner)[3..], ["release k 1", "renew k 3"]);
    // Asked for once, not each time that somebody goes past.
    assert_eq!(combiner.combine().distrusted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_may_pass_a_stalling_request_of_its_key_does() {
    let (combiner, _calls) = past(
        request("renew", "k", STALLS),
        vec![request("renew", "k", 1), request("release", "k", 2), request("renew", "k", 3)],
    )
    .await;
    // The last one waits behind the release.
    assert_eq!(sent(&combiner), [&format!("renew k {STALLS}"), "renew k 1"]);
}

#[tokio::test]
async fn while_batches_stall_there_is_one_lane_more() {
    let (combiner, mut calls) =
        past(request("a", "k", STALLS), vec![request("a", "l", STALLS)]).await;
    assert_eq!(sent(&combiner).len(), 2);
    calls.extend(enter(&combiner, [request_of("m")]).await);
    for _ in 0..20 {
        combiner.pass(Duration::ZERO);
        tokio::task::yield_now().await;
    }
    assert_eq!(sent(&combiner).len(), 2);
    combiner.combine().let_stalled.add_permits(1);
    assert_eq!(calls.remove(2).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_was_taken_back_is_never_sent() {
    let combiner = combiner();
    let mut turns = combiner.enter([request_of("k"), request("a", "k", 1)]);
    tokio::task::yield_now().await;
    let (sent_one, waiting) = (turns.next().unwrap(), turns.next().unwrap());
    assert!(waiting.withdraw());
    assert!(!sent_one.withdraw());
    combiner.combine().let_through.add_permits(100);
    assert_eq!(call(&combiner, request("a", "k", 2)).await.unwrap().unwrap(), 2);
    assert_eq!(sent(&combiner), ["a k 0", "a k 2"]);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn sends(combiner: &Combiner<Fake>, number: u32) {
    combiner.combine().let_through.add_permits(100);
    let long = std::time::Duration::from_secs(30);
    let sent = tokio::time::timeout(long, call(combiner, request("a", "k", number))).await;
    assert_eq!(sent.unwrap().unwrap().unwrap(), number);
}

#[test]
fn a_runtime_that_ends_stops_nobody() {
    let (combiner, ends) = (combiner(), runtime());
    let first = {
        let _inside = ends.enter();
        call(&combiner, request("a", "k", 0))
    };
    ends.block_on(tokio::task::yield_now());
    drop(ends);
    runtime().block_on(async {
        let error = first.await.unwrap().unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown);
        sends(&combiner, 1).await;
    });
}

#[test]
fn a_runtime_that_had_ended_stops_nobody() {
    let (combiner, ended) = (combiner(), runtime());
    let handle = ended.handle().clone();
    drop(ended);
    let first = {
        let _inside = handle.enter();
        call(&combiner, request("a", "k", 0))
    };
    runtime().block_on(async {
        sends(&combiner, 1).await;
        assert_eq!(first.await.unwrap().unwrap(), 0);
    });
}

#[test]
fn a_runtime_that_nobody_drives_stops_nobody() {
    let (combiner, undriven) = (combiner(), runtime());
    let mut first = {
        let _inside = undriven.enter();
        call(&combiner, request("a", "k", 0))
    };
    runtime().block_on(async {
        combiner.combine().let_through.add_permits(100);
        assert!((&mut first).now_or_never().is_none());
        combiner.pass(Duration::ZERO);
        assert_eq!(first.await.unwrap().unwrap(), 0);
        sends(&combiner, 1).await;
    });
}
/// A request that was sent from a runtime that nobody drives since.
fn left_behind(limit: Duration) -> (tokio::runtime::Runtime, Combiner<Fake>, Call) {
    let (combiner, undriven) = (combiner_with(3, 1, limit), runtime());
    let first = {
        let _inside = undriven.enter();
        call(&combiner, request("a", "k", STALLS))
    };
    undriven.block_on(tokio::task::yield_now());
    assert_eq!(sent(&combiner).len(), 1);
    combiner.combine().let_through.add_permits(100);
    (undriven, combiner, first)
}

#[test]
fn a_runtime_that_nobody_drives_keeps_its_keys_until_it_must_have_been_answered() {
    let (_undriven, combiner, _first) = left_behind(LONG);
    runtime().block_on(async {
        let (mut same, other) =
            (call(&combiner, request_of("k")), call(&combiner, request_of("l")));
        combiner.pass(Duration::ZERO);
        assert_eq!(other.await.unwrap().unwrap(), 0);
        assert!((&mut same).now_or_never().is_none());
        assert_eq!(sent(&combiner)[1..], ["a l 0"]);
    });
}

#[test]
fn a_runtime_that_nobody_drove_for_long_sends_nothing_more() {
    let (undriven, combiner, first) = left_behind(Duration::ZERO);
    runtime().block_on(async {
        let same = call(&combiner, request_of("k"));
        combiner.pass(Duration::ZERO);
        assert_eq!(same.await.unwrap().unwrap(), 0);
    });
    // Its reply is there, but its task sees first that it was given up.
    combiner.combine().let_stalled.add_permits(1);
    let error = undriven.block_on(first).unwrap().unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(combiner.combine().let_stalled.available_permits(), 1);
}
