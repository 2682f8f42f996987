//! Requests that arrive while others are under way travel together.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use leasehold_core::{Effect, Error, Key, Result};
use tokio::sync::oneshot;

/// How a store sends requests, one alone or several together.
pub trait Combine: Send + Sync + 'static {
    /// A request about one key.
    type Request: Send + Sync + 'static;
    /// Its reply.
    type Reply: Send + 'static;
    /// Only requests of one kind travel together.
    type Kind: PartialEq + Send;

    /// The kind of a request.
    fn kind(request: &Self::Request) -> Self::Kind;

    /// The key of a request.
    fn key(request: &Self::Request) -> &Key;

    /// Sends one request. `None` if it did not act, and must be sent by the caller without others behind it.
    fn send(
        &self,
        request: &Self::Request,
    ) -> impl Future<Output = Option<Result<Self::Reply>>> + Send;

    /// Sends several requests of one kind, in key order, each with a key of its own. One reply for each, in their
    /// order, as for [`send`](Combine::send).
    fn send_together(
        &self,
        requests: &[Self::Request],
    ) -> impl Future<Output = Vec<Option<Result<Self::Reply>>>> + Send;
}

/// From so many waiting requests on, a second batch at a time pays.
const MANY: usize = 40;
/// From so many on, fewer batches pay more than shorter ones.
const VERY_MANY: usize = 400;

/// Sends requests in batches: those that arrive while as many batches as there may be are under way travel in the next.
/// Requests for one key are sent in the order in which they arrived, each after the reply to the one before.
///
/// The batches are sent by tasks that live while there are requests, on the runtimes of those who asked.
pub struct Combiner<C: Combine>(Arc<Shared<C>>);

struct Shared<C: Combine> {
    combine: C,
    most: usize,
    lanes: usize,
    queue: Mutex<Queue<C>>,
}

struct Queue<C: Combine> {
    waiting: VecDeque<Waiting<C>>,
    /// The tasks that send them, by their numbers, with the keys of the batch that each has under way.
    senders: BTreeMap<u64, HashSet<Key>>,
    started: u64,
}

struct Waiting<C: Combine> {
    request: C::Request,
    reply: oneshot::Sender<Option<Result<C::Reply>>>,
}

/// A request that has entered a [`Combiner`].
#[derive(Debug)]
pub struct Turn<R>(oneshot::Receiver<Option<Result<R>>>);

impl<R> Turn<R> {
    /// Waits for the reply. `None` if the request did not act, and must be sent by the caller without others behind it.
    ///
    /// # Errors
    /// That of the request; `Unavailable` with an unknown effect if the runtime that sent it has ended.
    pub async fn reply(self) -> Option<Result<R>> {
        self.0.await.unwrap_or_else(|_| {
            let message = "the async runtime that sent the request has ended";
            Some(Err(Error::unavailable(Effect::Unknown, message)))
        })
    }
}

impl<C: Combine> Combiner<C> {
    /// A combiner of batches of at most `most` requests, of which one is under way at a time, and where many requests wait
    /// up to `lanes`.
    pub fn new(combine: C, most: usize, lanes: usize) -> Self {
        let queue = Queue { waiting: VecDeque::new(), senders: BTreeMap::new(), started: 0 };
        Self(Arc::new(Shared { combine, most, lanes, queue: Mutex::new(queue) }))
    }

    /// How requests are sent.
    pub fn combine(&self) -> &C {
        &self.0.combine
    }

    /// Sends these requests in their turn, even if nobody waits for the replies. They arrive at once, so that they travel
    /// in as few batches as they can.
    pub fn enter(
        &self,
        requests: impl IntoIterator<Item = C::Request>,
    ) -> vec::IntoIter<Turn<C::Reply>> {
        let (waiting, turns): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .map(|request| {
                let (reply, replied) = oneshot::channel();
                (Waiting { request, reply }, Turn(replied))
            })
            .unzip();
        self.0.enter(waiting);
        turns.into_iter()
    }

    /// Lets another task, on this runtime, send what waits: for a caller whose request got no reply in time, because
    /// nobody drives the runtime of the task that should have sent it.
    pub fn restart(&self) {
        let sender = {
            let mut queue = self.0.queue();
            queue.senders.clear();
            self.0.next_sender(&mut queue)
        };
        sender.into_iter().for_each(Sender::start);
    }
}

impl<C: Combine> Shared<C> {
    fn queue(&self) -> MutexGuard<'_, Queue<C>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>, waiting: Vec<Waiting<C>>) {
        let sender = {
            let mut queue = self.queue();
            let may_be_sent =
                waiting.iter().any(|waiting| !queue.is_under_way(C::key(&waiting.request)));
            queue.waiting.extend(waiting);
            if may_be_sent { self.next_sender(&mut queue) } else { None }
        };
        sender.into_iter().for_each(Sender::start);
    }

    /// Another sender, if one is needed.
    fn next_sender(self: &Arc<Self>, queue: &mut Queue<C>) -> Option<Sender<C>> {
        let waiting = queue.waiting.len();
        let is_needed = match queue.senders.len() {
            0 => waiting > 0,
            senders => senders < self.lanes && waiting > MANY,
        };
        is_needed.then(|| {
            queue.started += 1;
            queue.senders.insert(queue.started, HashSet::new());
            Sender { shared: Arc::clone(self), number: queue.started }
        })
    }
}

impl<C: Combine> Queue<C> {
    fn is_under_way(&self, key: &Key) -> bool {
        self.senders.values().any(|keys| keys.contains(key))
    }
}

/// The task that sends what waits.
struct Sender<C: Combine> {
    shared: Arc<Shared<C>>,
    number: u64,
}

impl<C: Combine> Sender<C> {
    /// Not under the queue's lock: a runtime that is ending drops it at once.
    fn start(self) {
        #[expect(clippy::disallowed_methods, reason = "a request outlives its caller (C15)")]
        drop(tokio::spawn(self.run()));
    }

    async fn run(self) {
        while let Some(batch) = self.next() {
            let many = batch.len() > 1;
            let (requests, replies): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.request, waiting.reply)).unzip();
            let answers = match &requests[..] {
                [request] => vec![self.shared.combine.send(request).await],
                requests => self.shared.combine.send_together(requests).await,
            };
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may have gone.
                drop(reply.send(answer));
            }
            if many {
                // Callers that have just been answered often have a next request.
                tokio::task::yield_now().await;
            }
        }
    }

    /// The next batch; `None` at the end of this task.
    fn next(&self) -> Option<Vec<Waiting<C>>> {
        let (batch, other) = {
            let mut queue = self.shared.queue();
            queue.senders.get_mut(&self.number)?.clear();
            let most = match queue.waiting.len() {
                VERY_MANY.. => self.shared.most,
                waiting => {
                    let busy = queue.senders.values().filter(|keys| !keys.is_empty()).count();
                    let free = self.shared.lanes.saturating_sub(busy).max(1);
                    waiting.div_ceil(free).max(MANY).min(self.shared.most)
                }
            };
            let batch = queue.take(most);
            if batch.is_empty() {
                queue.senders.remove(&self.number);
                return None;
            }
            let keys = batch.iter().map(|waiting| C::key(&waiting.request).clone());
            queue.senders.insert(self.number, keys.collect());
            (batch, self.shared.next_sender(&mut queue))
        };
        other.into_iter().for_each(Sender::start);
        Some(batch)
    }
}

impl<C: Combine> Drop for Sender<C> {
    /// With its runtime, too.
    fn drop(&mut self) {
        self.shared.queue().senders.remove(&self.number);
    }
}

impl<C: Combine> Queue<C> {
    /// Takes the first request that may be sent and those of its kind after it, in key order. One for a key that is under
    /// way, or that an earlier request has, stays.
    fn take(&mut self, most: usize) -> Vec<Waiting<C>> {
        let (mut batch, mut earlier) = (Vec::<Waiting<C>>::new(), HashSet::new());
        for next in std::mem::take(&mut self.waiting) {
            let key = C::key(&next.request);
            let is_first = !self.is_under_way(key) && earlier.insert(key.clone());
            let is_alike =
                batch.first().is_none_or(|first| C::kind(&first.request) == C::kind(&next.request));
            if is_first && is_alike && batch.len() < most {
                batch.push(next);
            } else {
                self.waiting.push_back(next);
            }
        }
        batch.sort_by(|a, b| C::key(&a.request).cmp(C::key(&b.request)));
        batch
    }
}

impl<C: Combine> Clone for Combiner<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Combine> fmt::Debug for Combiner<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Combiner")
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// Keeps what it sends, and replies when it is let.
    struct Fake {
        let_through: Semaphore,
        sent: Mutex<Vec<Vec<String>>>,
    }

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
            self.let_through.acquire().await.unwrap().forget();
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

        async fn send(&self, request: &Request) -> Option<Result<u32>> {
            self.note(std::slice::from_ref(request)).await;
            Some(Ok(request.2))
        }

        async fn send_together(&self, requests: &[Request]) -> Vec<Option<Result<u32>>> {
            self.note(requests).await;
            requests
                .iter()
                .map(|request| (request.0 != "skipped").then_some(Ok(request.2)))
                .collect()
        }
    }

    fn combiner() -> Combiner<Fake> {
        combiner_of(3, 1)
    }

    fn combiner_of(most: usize, lanes: usize) -> Combiner<Fake> {
        let sent = Mutex::default();
        Combiner::new(Fake { let_through: Semaphore::new(0), sent }, most, lanes)
    }

    type Call = Pin<Box<dyn Future<Output = Option<Result<u32>>> + Send>>;

    fn call(combiner: &Combiner<Fake>, request: Request) -> Call {
        let turn = combiner.enter([request]).next().unwrap();
        Box::pin(turn.reply())
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
        let expected: [&[&str]; 4] = [
            &["a first 0"],
            &["a b 2", "a c 5", "a z 1"],
            &["r b 3", "r c 7"],
            &["a b 4", "a d 6"],
        ];
        assert_eq!(sent, expected);
        assert_eq!(replies, (0..8).map(Some).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn where_many_wait_two_batches_are_under_way_and_no_key_is_in_both() {
        let combiner = combiner_of(1_000, 2);
        let many = |of: &str| {
            (0..MANY).map(move |n| request_of(&format!("{of}{n:02}"))).collect::<Vec<_>>()
        };
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
            for turn in turns {
                turn.reply().await.unwrap().unwrap();
            }
            let sent = combiner.combine().sent.lock().unwrap();
            assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), batches);
        }
    }

    #[tokio::test]
    async fn a_skipped_member_is_for_its_caller_to_send() {
        let (_, replies) = batches(vec![
            request("a", "x", 0),
            request("skipped", "y", 1),
            request("skipped", "z", 2),
        ])
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
            combiner.restart();
            assert_eq!(first.await.unwrap().unwrap(), 0);
            sends(&combiner, 1).await;
        });
    }
}
