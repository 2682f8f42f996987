//! A server that keeps what is sent, and what the tests share.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, FencingToken, Granted, Key, LeaseId, Mode, Note,
    ReleaseEntry, ReleaseOutcome, Remaining, RenewEntry, RenewOutcome, Result, Ttl,
};
use tokio::sync::Semaphore;

use super::*;

mod grouping;
mod runtimes;
mod stalls;

/// If more requests than these wait, a second batch is sent.
const MANY: usize = 40;

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

/// A request that enters when this is called.
type Enters = Box<dyn FnOnce(&Batches<Fake>) -> Call>;

/// Its number, when it is answered; `None` if it is for its caller to send.
type Call = Pin<Box<dyn Future<Output = Option<Result<u32>>> + Send>>;

/// Renewals are for ever, so that only other renewals may pass them.
fn request(kind: &'static str, key: &str, number: u32) -> Enters {
    fn enters<R: Numbered>(request: R) -> Enters {
        Box::new(move |batches| {
            let mut turn = batches.enter([sent_by(request)]).next().unwrap();
            Box::pin(async move {
                match turn.outcome().await {
                    Outcome::Done(reply) => Some(reply.map(R::number_of)),
                    Outcome::SendAlone => None,
                }
            })
        })
    }
    let id = LeaseId::foreign(b"lease").unwrap();
    match kind {
        "acquire" => enters(acquire(key, number)),
        "renew" => {
            let note = Note::default().with_pid(number);
            enters(RenewEntry::extend(id, exclusive(key), Ttl::NEVER).with_note(note))
        }
        _ => {
            let token = FencingToken::new(u64::from(number) + 1).unwrap();
            enters(ReleaseEntry::new(id, [Key::new(key).unwrap()]).with_token(token))
        }
    }
}

fn request_of(key: &str) -> Enters {
    request("acquire", key, 0)
}

fn acquire(key: &str, number: u32) -> AcquireRequest {
    let id = LeaseId::foreign(b"lease").unwrap();
    let note = Note::default().with_pid(number);
    AcquireRequest::new(id, exclusive(key), Ttl::NEVER).with_note(note)
}

fn exclusive(key: &str) -> Claims {
    Claims::one(Key::new(key).unwrap(), Mode::Exclusive)
}

/// As the batches take it.
fn sent_by<R: Request>(request: R) -> (Arc<R>, Deadline) {
    (Arc::new(request), Deadline::after(LONG))
}

/// How it is shown, and its number.
fn shown<R: Numbered>(requests: &[&R]) -> Vec<(String, u32)> {
    let show = |one: &&R| (format!("{} {} {}", R::KIND, one.key(), one.number()), one.number());
    requests.iter().map(show).collect()
}

fn outcomes<R: Numbered>(requests: &[&R]) -> Vec<Outcome<R::Reply>> {
    let outcome = |request: &&R| match request.number() {
        SKIPPED => Outcome::SendAlone,
        number => Outcome::Done(Ok(R::numbered(number))),
    };
    requests.iter().map(outcome).collect()
}

impl Server for Fake {
    async fn send(&self, requests: &Requests<'_>, _: Deadline) -> Outcomes {
        let Requests { acquires, renewals, releases } = requests;
        let shown = [shown(acquires), shown(renewals), shown(releases)].concat();
        let stalls = shown.iter().any(|(_, number)| *number == STALLS);
        let shown = shown.into_iter().map(|(shown, _)| shown).collect();
        self.sent.lock().unwrap().push(shown);
        let gate = if stalls { &self.let_stalled } else { &self.let_through };
        gate.acquire().await.unwrap().forget();
        Outcomes {
            acquires: outcomes(acquires),
            renewals: outcomes(renewals),
            releases: outcomes(releases),
        }
    }

    fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }

    fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        Error::unavailable(effect, format!("no reply within {limit:?}"))
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
    let (lanes, timeout) = (fake.lanes, fake.timeout);
    let sizes = Sizes { most, lanes, many: MANY, are_mixed: true, share_a_disk: true };
    Batches::new(Arc::new(fake), sizes, timeout)
}

/// Sends these, in this order.
async fn enter(batches: &Batches<Fake>, requests: impl IntoIterator<Item = Enters>) -> Vec<Call> {
    let mut calls = Vec::new();
    for request in requests {
        calls.push(request(batches));
        tokio::task::yield_now().await;
    }
    calls
}

/// What was sent, in text.
fn sent(batches: &Batches<Fake>) -> Vec<String> {
    batches.0.server.sent.lock().unwrap().iter().map(|batch| batch.join(", ")).collect()
}
