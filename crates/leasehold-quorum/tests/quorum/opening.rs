//! Opening the nodes of a URL: a minority that cannot be opened is down, and joins later.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::faulty::{Fault, Faulty, Node, Sent, ask, grant, id, released, renewed};
use leasehold_core::{
    AcquireReply, AnyStore, BoxFuture, Clock, Effect, Error, ErrorKind, Filter, ListRequest,
    ReleaseOutcome, RenewOutcome, Result, Store,
};
use leasehold_driver::TokioClock;
use leasehold_quorum::{OpenNode, QuorumStore, QuorumUrl};

/// What happens when a node is opened, first and later.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    AtOnce,
    /// It opens after this many failures.
    After(usize),
    /// It never answers.
    Never,
    /// It is not a store of ours.
    Incompatible,
}

fn opener(node: Node, opens: Opens, tries: Arc<AtomicUsize>) -> OpenNode {
    Box::new(move || -> BoxFuture<'static, Result<AnyStore>> {
        let (node, tries) = (node.clone(), Arc::clone(&tries));
        Box::pin(async move {
            let before = tries.fetch_add(1, Ordering::SeqCst);
            match opens {
                Opens::After(failures) if before < failures => {
                    Err(Error::invalid_input("its directory is not there"))
                }
                Opens::Never => pending().await,
                Opens::Incompatible => Err(Error::incompatible("it is of a newer version")),
                Opens::AtOnce | Opens::After(_) => Ok(AnyStore::new(Faulty(node))),
            }
        })
    })
}

struct Opened {
    nodes: Vec<Node>,
    tries: Vec<Arc<AtomicUsize>>,
    store: Result<QuorumStore>,
}

async fn open(opens: [Opens; 3], options: &str) -> Opened {
    let clock = TokioClock::new();
    let nodes: Vec<_> = (0..3).map(|_| Node::new(clock, 0)).collect();
    let tries: Vec<_> = (0..3).map(|_| Arc::default()).collect();
    let url = format!("quorum:?node=local:0&node=local:1&node=local:2{options}");
    let read = |url: &str| {
        let at: usize = url["local:".len()..].parse().expect("a number");
        Ok(opener(nodes[at].clone(), opens[at], Arc::clone(&tries[at])))
    };
    let url = QuorumUrl::parse(&url).expect("a URL").clock(Arc::new(clock));
    let store = url.open(read).await;
    Opened { nodes, tries, store }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_opened_is_down_and_recovers_by_itself() {
    let opened = open([Opens::AtOnce, Opens::AtOnce, Opens::After(2)], "&fenced=1").await;
    let store = opened.store.expect("a majority is open");
    let own = id("own");
    grant(&store, &own).await;
    store.settled().await;
    assert!(!opened.nodes[2].has(&own).await);
    assert_eq!(opened.tries[2].load(Ordering::SeqCst), 2);
    // The third try opens it, and the renewal after that puts the lease back.
    for _ in 0..2 {
        let renewed = renewed(&store, &own).await;
        assert!(matches!(renewed, RenewOutcome::Held(_)), "{renewed:?}");
        store.settled().await;
    }
    assert!(opened.nodes[2].has(&own).await);
    assert_eq!(opened.tries[2].load(Ordering::SeqCst), 3, "it is opened once");
    assert!(matches!(released(&store, &own).await, ReleaseOutcome::Released));
    store.settled().await;
    assert!(!opened.nodes[2].has(&own).await);
}

#[tokio::test]
async fn without_a_majority_each_nodes_failure_is_reported() {
    let error = open([Opens::Incompatible, Opens::AtOnce, Opens::After(9)], "").await;
    let error = error.store.expect_err("one of three is open");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert_eq!((error.store(), error.operation()), (Some("quorum"), Some("connect")));
    let failed = error.nodes().iter().filter(|node| node.error.is_some()).count();
    assert_eq!((error.nodes().len(), failed), (3, 2));
    assert!(error.to_string().contains("local:2: its directory is not there"), "{error}");
    // A failure that no later try can resolve is reported as it is.
    for (opens, kind) in
        [(Opens::Incompatible, ErrorKind::Incompatible), (Opens::After(9), ErrorKind::InvalidInput)]
    {
        let error = open([opens, Opens::AtOnce, opens], "").await.store.expect_err("no majority");
        assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied));
    }
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_hangs_while_opening_is_awaited_for_10_s_at_most() {
    let clock = TokioClock::new();
    let start = clock.now();
    let opening = open([Opens::Never, Opens::AtOnce, Opens::Never], "");
    let opened = tokio::time::timeout(Duration::from_secs(60), opening).await;
    let error = opened.expect("it is not waited for").store.expect_err("one of three is open");
    assert_eq!((clock.now() - start).as_secs(), 10);
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    let failed: Vec<_> = error.nodes().iter().map(|node| node.error.is_some()).collect();
    assert_eq!(failed, [true, false, true]);
    assert!(error.to_string().contains("local:0: it was not open within 10s"), "{error}");
}

#[tokio::test]
async fn a_mistake_in_a_nodes_url_is_not_a_failure_of_the_node() {
    let url = QuorumUrl::parse("quorum:?node=a:&node=b:&node=c:").expect("a URL");
    let read = |url: &str| match url {
        "c:" => Err(Error::invalid_input("the store scheme \"c\" is not known here")),
        _ => Ok(opener(Node::new(TokioClock::new(), 0), Opens::AtOnce, Arc::default())),
    };
    let error = url.open(read).await.expect_err("a mistake");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains("the node \"c:\" of the quorum URL: the store scheme"), "{text}");
}

#[tokio::test]
async fn a_node_that_hangs_while_opening_does_not_delay_the_others() {
    let limit = Duration::from_secs(20);
    let opening = open([Opens::Never, Opens::AtOnce, Opens::AtOnce], "&node_timeout=50ms");
    let opened = tokio::time::timeout(limit, opening).await.expect("it is not waited for");
    let store = opened.store.expect("a majority is open");
    let acquired = tokio::time::timeout(limit, store.acquire(&ask(&id("own")))).await;
    let acquired = acquired.expect("it is not waited for");
    assert!(matches!(acquired, Ok(AcquireReply::Granted(_))), "{acquired:?}");
}

#[tokio::test]
async fn a_node_that_opens_later_is_checked() {
    let opened = open([Opens::AtOnce, Opens::AtOnce, Opens::Incompatible], "").await;
    let error = opened.store.expect("a majority is open").check().await.expect_err("it is unfit");
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("local:2"), "{error}");
    let opened = open([Opens::AtOnce, Opens::AtOnce, Opens::After(9)], "").await;
    let health = opened.store.expect("a majority is open").check().await.expect("a majority");
    assert!(health.hazards.iter().any(|hazard| hazard.contains("its directory")), "{health:?}");
}

/// A node of another kind may lack what the quorum claims that all have.
#[tokio::test]
async fn a_late_node_without_tokens_is_refused_in_a_fenced_quorum() {
    let clock = TokioClock::new();
    let tries: Arc<AtomicUsize> = Arc::default();
    let unfenced = QuorumUrl::parse("quorum:?node=x:").expect("a URL");
    let unfenced = unfenced
        .open(|_| Ok(opener(Node::new(clock, 0), Opens::AtOnce, Arc::default())))
        .await
        .expect("one node");
    let url = QuorumUrl::parse("quorum:?node=a:&node=b:&node=c:&fenced=1").expect("a URL");
    let store = url
        .open(|url| match url {
            "c:" => {
                let (unfenced, tries) = (unfenced.clone(), Arc::clone(&tries));
                Ok(Box::new(move || -> BoxFuture<'static, Result<AnyStore>> {
                    let (unfenced, tries) = (unfenced.clone(), Arc::clone(&tries));
                    Box::pin(async move {
                        match tries.fetch_add(1, Ordering::SeqCst) {
                            0 => Err(Error::unavailable(Effect::NotApplied, "it is down")),
                            _ => Ok(AnyStore::new(unfenced)),
                        }
                    })
                }) as OpenNode)
            }
            _ => Ok(opener(Node::new(clock, 0), Opens::AtOnce, Arc::default())),
        })
        .await
        .expect("a majority is open");
    assert!(grant(&store, &id("own")).await.is_some());
    store.settled().await;
    let error = store.check().await.expect_err("it is unfit");
    assert!(error.to_string().contains("no fencing tokens"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_late_node_that_hangs_is_opened_by_one_task_and_gets_no_old_request() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let clock = TokioClock::new();
    let late = Node::new(clock, 0);
    let tries = Arc::new(AtomicUsize::new(0));
    let url = QuorumUrl::parse("quorum:?node=a:&node=b:&node=c:").expect("a URL");
    let read = |url: &str| -> Result<OpenNode> {
        if url != "c:" {
            return Ok(opener(Node::new(clock, 0), Opens::AtOnce, Arc::default()));
        }
        let (gate, late, tries) = (Arc::clone(&gate), late.clone(), Arc::clone(&tries));
        Ok(Box::new(move || {
            let (gate, late, tries) = (Arc::clone(&gate), late.clone(), Arc::clone(&tries));
            Box::pin(async move {
                tries.fetch_add(1, Ordering::SeqCst);
                gate.notified().await;
                Ok(AnyStore::new(Faulty(late)))
            })
        }))
    };
    let store = url.clock(Arc::new(clock)).open(read).await.expect("a majority is open");
    for n in 0..5 {
        let own = id(&format!("own {n}"));
        grant(&store, &own).await;
        assert!(matches!(released(&store, &own).await, ReleaseOutcome::Released));
    }
    // Nothing waits for the node: all of it has been answered before the node is open.
    let settled = tokio::time::timeout(Duration::from_secs(60), store.settled()).await;
    settled.expect("no request waits for the node");
    assert_eq!(tries.load(Ordering::SeqCst), 2, "with the others, and one later try");
    let page =
        store.list(&ListRequest::new(Filter::default().with_key(crate::faulty::key()))).await;
    let page = page.expect("a majority");
    let error = page.nodes[2].error.as_ref().expect("it is not open");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("not open yet"), "{error}");
    gate.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(late.log(), [Sent::Check], "it is checked, and sent nothing old");
    let own = id("new");
    grant(&store, &own).await;
    store.settled().await;
    assert!(late.has(&own).await);
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_opens_late_and_is_unfit_grants_nothing() {
    for (is_durable, same_server) in [(true, false), (false, false), (true, true)] {
        let opened = open([Opens::AtOnce, Opens::AtOnce, Opens::After(1)], "").await;
        let store = opened.store.expect("a majority is open");
        for (at, node) in opened.nodes.iter().enumerate() {
            node.set_health(|health| {
                health.durable = at < 2 || is_durable;
                health.identity =
                    Some(format!("server {}", if same_server && at == 2 { 0 } else { at }));
            });
        }
        // The state of the others is known.
        opened.nodes[2].down(Fault::Unreachable);
        store.check().await.expect("a majority");
        opened.nodes[2].up();
        let own = id("own");
        let answer = store.acquire(&ask(&own)).await.expect("a majority");
        let AcquireReply::Granted(_) = answer else { panic!("{answer:?}") };
        store.settled().await;
        let is_fit = is_durable && !same_server;
        assert_eq!(opened.nodes[2].has(&own).await, is_fit, "{is_durable} {same_server}");
        assert_eq!(store.check().await.is_ok(), is_fit);
        assert_eq!(opened.tries[2].load(Ordering::SeqCst), 2, "it is opened once");
    }
}
