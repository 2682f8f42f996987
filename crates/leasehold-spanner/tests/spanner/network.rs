//! Faults of the network and of the emulator, in both formats.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::ReadWriteTransaction;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    AcquireReply, AcquireRequest, AnyStore, Claims, Clock as _, Effect, ErrorKind, EvictRequest,
    Filter, LeaseId, ListRequest, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry,
    RenewOutcome, RenewRequest, Store, Ttl,
};
use leasehold_driver::SystemClock;
use leasehold_spanner::{SpannerConfig, SpindleConfig};
use leasehold_testkit::spanner::Emulator;
use leasehold_testkit::{fails_within, until};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{LIMIT, config, key, token_of};

/// Longer than the requests that fail at their limits take together, on a busy machine.
const TTL: Duration = Duration::from_secs(60);

/// A table behind a proxy.
struct Behind {
    is_spindle: bool,
    emulator: Emulator,
    proxy: Proxy,
    store: AnyStore,
    /// The same table, past the proxy.
    past: AnyStore,
}

/// Both formats, each on an emulator of its own. The clock is not read again, so that a busy machine makes no exchange more.
async fn each_format(test: impl AsyncFn(&Behind)) {
    each_format_with(|config| config.timeout(LIMIT).read_again_after(LIMIT), test).await;
}

/// The same with these settings.
async fn each_format_with(
    settings: impl Fn(SpannerConfig) -> SpannerConfig,
    test: impl AsyncFn(&Behind),
) {
    each_format_on(Emulator::start, settings, test).await;
}

/// The same on an emulator that starts so.
async fn each_format_on(
    start: impl AsyncFn() -> leasehold_conformance::Result<Emulator>,
    settings: impl Fn(SpannerConfig) -> SpannerConfig,
    test: impl AsyncFn(&Behind),
) {
    for is_spindle in [false, true] {
        let emulator = start().await.unwrap();
        let server = ([127, 0, 0, 1], emulator.port()).into();
        let proxy = Proxy::before_http2(server).await.unwrap();
        let open = async |config: SpannerConfig| match is_spindle {
            false => AnyStore::new(config.connect().await.unwrap()),
            true => {
                let config = SpindleConfig::new(config.table("locktable")).duration(TTL);
                AnyStore::new(config.connect().await.unwrap())
            }
        };
        let behind = config(&emulator).emulator(proxy.address().to_string());
        let store = open(settings(behind)).await;
        let past = open(config(&emulator).timeout(Duration::from_secs(30))).await;
        past.prepare().await.unwrap();
        let behind = Behind { is_spindle, emulator, proxy, store, past };
        // The connection is there, and the names are known.
        for name in ["a", "b"] {
            behind.release(&behind.hold(name).await).await;
        }
        test(&behind).await;
    }
}

fn request(name: &str) -> AcquireRequest {
    let ttl = Ttl::new(TTL).unwrap();
    AcquireRequest::new(LeaseId::mint().unwrap(), Claims::one(key(name), Mode::Exclusive), ttl)
}

impl Behind {
    async fn hold(&self, name: &str) -> AcquireRequest {
        let request = request(name);
        token_of(self.store.acquire(&request).await.unwrap());
        request
    }

    async fn release(&self, held: &AcquireRequest) -> ReleaseOutcome {
        self.store.release(&ending(held)).await.unwrap().leases.remove(0)
    }
}

fn ending(held: &AcquireRequest) -> ReleaseRequest {
    ReleaseRequest::new(vec![ReleaseEntry::new(held.id().clone(), held.claims().keys().cloned())])
}

fn renewal(held: &AcquireRequest) -> RenewRequest {
    let ttl = Ttl::new(TTL).unwrap();
    RenewRequest::new(vec![RenewEntry::extend(held.id().clone(), held.claims().clone(), ttl)])
}

pub(super) async fn a_grant_whose_commit_was_not_answered_keeps_its_token() {
    each_format(async |behind| {
        for fault in [Fault::SwallowAnswers, Fault::Stall, Fault::CutAfter] {
            let request = request("a");
            // The statement, and then the commit.
            behind.proxy.once_after(1, fault);
            let answer = behind.store.acquire(&request).await;
            let stored = token_of(behind.past.acquire(&request).await.unwrap());
            match answer {
                // The driver has sent the commit again.
                Ok(reply) => assert_eq!((fault, token_of(reply)), (Fault::CutAfter, stored)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{fault:?}: {error}");
                    assert_eq!(error.effect(), Effect::Unknown, "{fault:?}: {error}");
                }
            }
            let again = behind.store.acquire(&request).await.unwrap();
            assert_eq!(token_of(again), stored);
            behind.release(&request).await;
        }
    })
    .await;
}

pub(super) async fn a_release_whose_commit_was_not_answered_is_never_not_held() {
    each_format(async |behind| {
        for fault in [Fault::SwallowAnswers, Fault::CutAfter, Fault::CutBefore] {
            let held = behind.hold("a").await;
            behind.proxy.once_after(1, fault);
            match behind.store.release(&ending(&held)).await {
                Ok(reply) => {
                    let outcome = &reply.leases[0];
                    assert!(matches!(outcome, ReleaseOutcome::Released), "{fault:?}: {outcome:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{fault:?}: {error}");
                    assert_eq!(error.effect(), Effect::Unknown, "{fault:?}: {error}");
                }
            }
            behind.past.release(&ending(&held)).await.unwrap();
        }
    })
    .await;
}

/// As where another client has locked the rows of one of them. Each is sent in time.
pub(super) async fn requests_that_share_a_transaction_without_an_answer_are_sent_alone() {
    let settings = |config: SpannerConfig| config.timeout(TTL / 2).read_again_after(TTL);
    each_format_with(settings, async |behind| {
        let (a, b) = (behind.hold("a").await, behind.hold("b").await);
        let both = [&a, &b].map(|held| renewal(held).leases()[0].clone());
        if !behind.is_spindle {
            behind.proxy.once(Fault::Stall);
        }
        let clock = SystemClock::new();
        let began = clock.now();
        let renewed = behind.store.renew(&RenewRequest::new(both.to_vec())).await.unwrap();
        let are_held = |one: &RenewOutcome| matches!(one, RenewOutcome::Held(_));
        assert!(renewed.leases.iter().all(are_held), "{renewed:?}");
        let took = clock.now() - began;
        assert!(took < TTL / 4, "{took:?}");
    })
    .await;
}

pub(super) async fn an_aborted_transaction_is_begun_again_within_the_limit_and_not_after_it() {
    let settings = |config: SpannerConfig| config.timeout(LIMIT).read_again_after(LIMIT);
    each_format_on(Emulator::start_first_come, settings, async |behind| {
        let held = behind.hold("a").await;
        let foreign = Foreign::begin(&behind.emulator).await;
        let error = fails_within(LIMIT, behind.store.acquire(&request("b"))).await;
        assert_eq!(error.effect(), Effect::NotApplied, "{error}");
        fails_within(LIMIT, behind.store.renew(&renewal(&held))).await;
        let begun = behind.proxy.exchanges();
        let waits = request("b");
        let waiting = behind.store.acquire(&waits);
        let ending = async {
            until(async || begun + 2 < behind.proxy.exchanges()).await;
            foreign.end().await;
        };
        // What has failed has left no lease.
        token_of(tokio::join!(waiting, ending).0.unwrap());
        let after = behind.proxy.exchanges();
        assert!(matches!(behind.release(&held).await, ReleaseOutcome::Released));
        assert_eq!(behind.proxy.exchanges() - after, 2, "nothing goes on beside it");
    })
    .await;
}

/// A transaction of another client.
struct Foreign {
    ends: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Foreign {
    /// Begins it: it is under way until [`end`](Self::end).
    async fn begin(emulator: &Emulator) -> Self {
        let client = emulator.client().await.unwrap();
        let ((begun, begins), (ends, ended)) = (oneshot::channel(), oneshot::channel());
        let channels = Arc::new(Mutex::new(Some((begun, ended))));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let work = move |transaction: ReadWriteTransaction| {
                let (begun, ended) = channels.lock().unwrap().take().expect("nothing aborts it");
                async move {
                    transaction
                        .execute_query(Statement::builder("SELECT COUNT(*) FROM clock").build())
                        .await?;
                    begun.send(()).unwrap();
                    drop(ended.await);
                    Ok(())
                }
            };
            client.read_write_transaction().build().run(work).await.unwrap();
        });
        begins.await.unwrap();
        Self { ends, task }
    }

    async fn end(self) {
        self.ends.send(()).unwrap();
        self.task.join_all().await;
    }
}

pub(super) async fn an_answer_that_stalls_is_given_up_and_its_connection_replaced() {
    each_format(async |behind| {
        let held = behind.hold("a").await;
        for others in [0, 1] {
            behind.proxy.once_after(others, Fault::Stall);
            fails_within(LIMIT, behind.store.acquire(&request("b"))).await;
            behind.past.release(&ending(&request("b"))).await.unwrap();
        }
        behind.proxy.once(Fault::Stall);
        fails_within(LIMIT, behind.store.list(&ListRequest::new(Filter::default()))).await;
        let renewed = behind.store.renew(&renewal(&held)).await.unwrap();
        assert!(matches!(renewed.leases[0], RenewOutcome::Held(_)), "{renewed:?}");
    })
    .await;
}

pub(super) async fn a_dead_connection_stops_nobody_longer_than_one_limit() {
    each_format(async |behind| {
        let held = behind.hold("a").await;
        behind.proxy.set_present(Fault::BlackHole);
        fails_within(LIMIT, behind.store.renew(&renewal(&held))).await;
        let renewed = behind.store.renew(&renewal(&held)).await.unwrap();
        assert!(matches!(renewed.leases[0], RenewOutcome::Held(_)), "{renewed:?}");
        // The connection of the other requests may have been replaced too.
        let request = request("b");
        if let Err(error) = behind.store.acquire(&request).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let reply = behind.store.acquire(&request).await.unwrap();
        assert!(matches!(reply, AcquireReply::Granted(_)), "{reply:?}");
    })
    .await;
}

pub(super) async fn an_answer_that_stalls_beside_others_replaces_one_connection() {
    each_format(async |behind| {
        let list = ListRequest::new(Filter::default());
        behind.store.list(&list).await.unwrap();
        let before = behind.proxy.accepted();
        for _ in 0..2 {
            let (request, stalled) = (request("a"), behind.proxy.exchanges() + 1);
            behind.proxy.once(Fault::Stall);
            let answered = async {
                until(async || behind.proxy.exchanges() >= stalled).await;
                behind.store.list(&list).await.unwrap();
            };
            tokio::join!(fails_within(LIMIT, behind.store.acquire(&request)), answered);
            behind.release(&behind.hold("b").await).await;
        }
        assert_eq!(behind.proxy.accepted(), before + 1);
    })
    .await;
}

pub(super) async fn a_key_that_was_refused_lately_is_looked_at_without_a_lock() {
    each_format(async |behind| {
        let held = request("a");
        token_of(behind.past.acquire(&held).await.unwrap());
        let count = async |request: &AcquireRequest, is_granted: bool| {
            let before = behind.proxy.exchanges();
            let reply = behind.store.acquire(request).await.unwrap();
            assert_eq!(matches!(reply, AcquireReply::Granted(_)), is_granted, "{reply:?}");
            behind.proxy.exchanges() - before
        };
        // The statement and the end of the transaction.
        let in_transaction = 2;
        assert_eq!(count(&request("a"), false).await, in_transaction);
        for _ in 0..3 {
            assert_eq!(count(&request("a"), false).await, 1, "a statement without a lock");
        }
        assert_eq!(count(&request("b"), true).await, in_transaction);
        behind.past.release(&ending(&held)).await.unwrap();
        let taken = request("a");
        assert_eq!(count(&taken, true).await, 1 + in_transaction, "the same, and a transaction");
    })
    .await;
}

pub(super) async fn a_purge_that_stalls_returns_what_it_has_done() {
    // On a busy machine what comes before the stall takes a while.
    let limit = Duration::from_secs(10);
    let settings = |config: SpannerConfig| config.timeout(limit).read_again_after(limit);
    each_format_with(settings, async |behind| {
        // A page has 1,000 rows, and a key two rows in the native table.
        let last = if behind.is_spindle { 2_200 } else { 1_700 };
        let all =
            format!("SELECT n, MOD(n, 100) = 0 AS is_over FROM UNNEST(GENERATE_ARRAY(1001, {last})) AS n");
        let micros = "UNIX_MICROS(CURRENT_TIMESTAMP())";
        let rows = match behind.is_spindle {
            true => format!(
                "INSERT locktable (name, heartbeat, token, writer) SELECT CONCAT('old', CAST(n AS STRING)), \
                 TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL IF(is_over, 10, 0) DAY), \
                 TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 20 DAY), 'w' FROM ({all})"
            ),
            false => format!(
                "INSERT leasehold (key, id, counter, shared, state, token, expires, granted_at) \
                 SELECT CONCAT('old', CAST(n AS STRING)), id, IF(id = b'', {micros}, NULL), IF(id = b'', NULL, FALSE), \
                 IF(id = b'', NULL, 'h'), IF(id = b'', NULL, 7), IF(id = b'', NULL, IF(is_over, 9, {micros} + 600000000)), IF(id = b'', NULL, 7) \
                 FROM ({all}) CROSS JOIN UNNEST([b'', b'i']) AS id"
            ),
        };
        behind.emulator.write(rows).await.unwrap();
        let purge = EvictRequest::expired(Filter::default()).with_limit(1_000);
        // A page, and the transaction that removes what is over in it.
        behind.proxy.once_after(3, Fault::Stall);
        let first = behind.store.evict(&purge).await.unwrap();
        assert!(first.more && first.unreadable.is_empty(), "{:?}", first.unreadable);
        let (removed, over) = (first.removed.len(), (last - 1_000) / 100);
        assert!((1..over).contains(&removed), "{removed}");
        let mut rest = 0;
        loop {
            let reply = behind.store.evict(&purge).await.unwrap();
            rest += reply.removed.len();
            if !reply.more {
                break;
            }
        }
        assert_eq!(removed + rest, over);
    })
    .await;
}

pub(super) async fn the_clock_is_read_again_after_a_statement_that_took_long() {
    each_format_with(
        |config| config.timeout(LIMIT),
        async |behind| {
            let held = behind.hold("a").await;
            let count = async || {
                let before = behind.proxy.exchanges();
                behind.store.renew(&renewal(&held)).await.unwrap();
                behind.proxy.exchanges() - before
            };
            behind.proxy.set(Fault::Delay(Duration::from_millis(60)));
            assert_eq!(count().await, 3, "the statement, the clock, the commit");
            behind.proxy.set(Fault::None);
            until(async || count().await == 2).await;
        },
    )
    .await;
}

pub(super) async fn an_emulator_that_is_started_again_serves_what_is_prepared_again() {
    each_format(async |behind| {
        behind.emulator.restart().await.unwrap();
        // It keeps nothing: neither the table nor the driver's sessions.
        for store in [&behind.store, &behind.past] {
            let error = store.list(&ListRequest::new(Filter::default())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        }
        behind.past.prepare().await.unwrap();
        let reply = behind.store.acquire(&request("a")).await.unwrap();
        assert!(matches!(reply, AcquireReply::Granted(_)), "{reply:?}");
    })
    .await;
}
