use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, FencingToken, Granted, Key, LeaseId, Mode, Note,
    ReleaseEntry, ReleaseOutcome, Remaining, RenewEntry, RenewOutcome, Result, Ttl,
};
use tokio::sync::Semaphore;

use super::*;
use crate::dialect::Exchange;

/// Keeps what it sends, and replies when it is let.
struct Fake {
    let_through: Semaphore,
    /// Likewise for requests with the number [`STALLS`].
    let_stalled: Semaphore,
    sent: Mutex<Vec<Vec<String>>>,
    lanes: usize,
    timeout: Duration,
    retired: AtomicUsize,
}

const STALLS: u32 = u32::MAX;
/// A member of a batch that does not act.
const SKIPPED: u32 = u32::MAX - 1;
const LONG: Duration = Duration::from_secs(60);

/// A request with a number that its reply repeats. All are about one lease id.
trait Numbered: Request {
    const KIND: &'static str;

    fn number(&self) -> u32;

    fn numbered(number: u32) -> Self::Reply;

    fn number_of(reply: Self::Reply) -> u32;
}

impl Numbered for AcquireRequest {
    const KIND: &'static str = "acquire";

    fn number(&self) -> u32 {
        self.note().pid().unwrap()
    }

    fn numbered(number: u32) -> AcquireReply {
        let token = FencingToken::new(u64::from(number) + 1).unwrap();
        AcquireReply::Granted(Granted::new(Some(token), Remaining::Never, true))
    }

    fn number_of(reply: AcquireReply) -> u32 {
        match reply {
            AcquireReply::Granted(granted) => below(granted.token.unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

impl Numbered for RenewEntry {
    const KIND: &'static str = "renew";

    fn number(&self) -> u32 {
        self.note().pid().unwrap()
    }

    fn numbered(number: u32) -> RenewOutcome {
        RenewOutcome::Held(Remaining::For(Duration::from_secs(number.into())))
    }

    fn number_of(reply: RenewOutcome) -> u32 {
        match reply {
            RenewOutcome::Held(Remaining::For(rest)) => rest.as_secs().try_into().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

impl Numbered for ReleaseEntry {
    const KIND: &'static str = "release";

    fn number(&self) -> u32 {
        below(self.token().unwrap())
    }

    fn numbered(number: u32) -> ReleaseOutcome {
        ReleaseOutcome::Kept(Duration::from_secs(number.into()))
    }

    fn number_of(reply: ReleaseOutcome) -> u32 {
        match reply {
            ReleaseOutcome::Kept(kept) => kept.as_secs().try_into().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn below(token: FencingToken) -> u32 {
    (token.get() - 1).try_into().unwrap()
}

#[derive(Clone)]
enum Numbers {
    Acquire(AcquireRequest),
    Renew(RenewEntry),
    Release(ReleaseEntry),
}

/// Renewals are for ever, so that only other renewals may pass them.
fn request(kind: &'static str, key: &str, number: u32) -> Numbers {
    let (id, key) = (LeaseId::foreign(b"lease").unwrap(), Key::new(key).unwrap());
    let claims = |key| Claims::one(key, Mode::Exclusive);
    let note = Note::default().with_pid(number);
    match kind {
        "acquire" => {
            Numbers::Acquire(AcquireRequest::new(id, claims(key), Ttl::NEVER).with_note(note))
        }
        "renew" => Numbers::Renew(RenewEntry::extend(id, claims(key), Ttl::NEVER).with_note(note)),
        _ => {
            let token = FencingToken::new(u64::from(number) + 1).unwrap();
            Numbers::Release(ReleaseEntry::new(id, [key]).with_token(token))
        }
    }
}

fn request_of(key: &str) -> Numbers {
    request("acquire", key, 0)
}

/// As the batches take it.
fn acquire(key: &str, number: u32) -> (Arc<AcquireRequest>, Deadline) {
    match request("acquire", key, number) {
        Numbers::Acquire(request) => (Arc::new(request), Deadline::after(LONG)),
        Numbers::Renew(_) | Numbers::Release(_) => unreachable!("it acquires"),
    }
}

impl Fake {
    async fn note<R: Numbered>(&self, requests: &[&R]) {
        let shown =
            requests.iter().map(|one| format!("{} {} {}", R::KIND, one.key(), one.number()));
        self.sent.lock().unwrap().push(shown.collect());
        let stalls = requests.iter().any(|one| one.number() == STALLS);
        let gate = if stalls { &self.let_stalled } else { &self.let_through };
        gate.acquire().await.unwrap().forget();
    }
}

fn outcome<R: Numbered>(request: &R) -> Outcome<R::Reply> {
    match request.number() {
        SKIPPED => Outcome::SendAlone,
        number => Outcome::Done(Ok(R::numbered(number))),
    }
}

impl<R: Numbered> Exchange<R> for Fake {
    async fn send(&self, request: &R, _: Deadline) -> Outcome<R::Reply> {
        self.note(&[request]).await;
        outcome(request)
    }

    async fn send_batch(&self, requests: &[&R], _: Deadline) -> Vec<Outcome<R::Reply>> {
        self.note(requests).await;
        requests.iter().map(|request| outcome(*request)).collect()
    }

    async fn send_alone(&self, request: &R, _: Deadline) -> Outcome<R::Reply> {
        panic!("{} {} is sent alone", R::KIND, request.key())
    }
}

impl Server for Fake {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }
}

fn batches() -> Batches<Fake> {
    batches_of(3, 1)
}

fn batches_of(most: usize, lanes: usize) -> Batches<Fake> {
    batches_with(most, lanes, LONG)
}

fn batches_with(most: usize, lanes: usize, timeout: Duration) -> Batches<Fake> {
    let fake = Fake {
        let_through: Semaphore::new(0),
        let_stalled: Semaphore::new(0),
        sent: Mutex::default(),
        lanes,
        timeout,
        retired: AtomicUsize::new(0),
    };
    Batches::new(Arc::new(fake), most)
}

type Call = Pin<Box<dyn Future<Output = Option<Result<u32>>> + Send>>;

fn call(batches: &Batches<Fake>, request: Numbers) -> Call {
    fn of<R: Numbered>(batches: &Batches<Fake>, request: R) -> Call {
        let until = Deadline::after(LONG);
        let mut turn = batches.enter([(Arc::new(request), until)]).next().unwrap();
        Box::pin(async move {
            match turn.outcome().await {
                Outcome::Done(reply) => Some(reply.map(R::number_of)),
                Outcome::SendAlone | Outcome::RowLocked => None,
            }
        })
    }
    match request {
        Numbers::Acquire(request) => of(batches, request),
        Numbers::Renew(request) => of(batches, request),
        Numbers::Release(request) => of(batches, request),
    }
}

/// Sends these, in this order.
async fn enter(batches: &Batches<Fake>, requests: impl IntoIterator<Item = Numbers>) -> Vec<Call> {
    let mut calls = Vec::new();
    for request in requests {
        calls.push(call(batches, request));
        tokio::task::yield_now().await;
    }
    calls
}

/// Sends these while the first is under way, in this order, and returns the batches.
async fn sent_in_batches(requests: Vec<Numbers>) -> (Vec<Vec<String>>, Vec<Option<u32>>) {
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
        let turns = batches.enter((0..count).map(|n| acquire(&format!("k{n:04}"), n)));
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
        drop(call(&batches, request("acquire", "k", number)));
    }
    batches.0.server.let_through.add_permits(100);
    assert_eq!(call(&batches, request("acquire", "k", 3)).await.unwrap().unwrap(), 3);
    assert_eq!(batches.0.server.sent.lock().unwrap().len(), 4);
}

/// What was sent, in text.
fn sent(batches: &Batches<Fake>) -> Vec<String> {
    batches.0.server.sent.lock().unwrap().iter().map(|batch| batch.join(", ")).collect()
}

/// Sends these while a request stalls, for as long as nothing more is sent.
async fn past(stalls: Numbers, requests: Vec<Numbers>) -> (Batches<Fake>, Vec<Call>) {
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

#[tokio::test]
async fn a_request_that_was_taken_back_is_never_sent() {
    let batches = batches();
    let mut turns = batches.enter([acquire("k", 0), acquire("k", 1)]);
    tokio::task::yield_now().await;
    let (sent_one, waiting) = (turns.next().unwrap(), turns.next().unwrap());
    assert!(waiting.withdraw());
    assert!(!sent_one.withdraw());
    batches.0.server.let_through.add_permits(100);
    assert_eq!(call(&batches, request("acquire", "k", 2)).await.unwrap().unwrap(), 2);
    assert_eq!(sent(&batches), ["acquire k 0", "acquire k 2"]);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn sends(batches: &Batches<Fake>, number: u32) {
    batches.0.server.let_through.add_permits(100);
    let long = std::time::Duration::from_secs(30);
    let sent = tokio::time::timeout(long, call(batches, request("acquire", "k", number))).await;
    assert_eq!(sent.unwrap().unwrap().unwrap(), number);
}

#[test]
fn a_runtime_that_ends_stops_nobody() {
    let (batches, ends) = (batches(), runtime());
    let first = {
        let _inside = ends.enter();
        call(&batches, request("acquire", "k", 0))
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
        call(&batches, request("acquire", "k", 0))
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
        call(&batches, request("acquire", "k", 0))
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
        call(&batches, request("acquire", "k", STALLS))
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
        let (mut same, other) = (call(&batches, request_of("k")), call(&batches, request_of("l")));
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
        let same = call(&batches, request_of("k"));
        batches.pass(Duration::ZERO);
        assert_eq!(same.await.unwrap().unwrap(), 0);
    });
    // Its reply is there, but its task sees first that it was given up.
    batches.0.server.let_stalled.add_permits(1);
    let error = undriven.block_on(first).unwrap().unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(batches.0.server.let_stalled.available_permits(), 1);
}
