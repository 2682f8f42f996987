//! Quorums whose nodes are of different kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::faulty::{Faulty, Node, ask, grant, id, released};
use leasehold_core::{
    AcquireReply, AnyStore, Clock, Effect, Error, ErrorKind, ManualClock, Result, Store,
};
use leasehold_driver::TokioClock;
use leasehold_local::LocalStore;
use leasehold_quorum::{OpenNode, QuorumConfig, QuorumUrl};
use leasehold_sqlite::{NeneConfig, SqliteNeneConfig, SqliteNeneStore};
use tempfile::TempDir;

#[test]
fn a_fenced_quorum_refuses_a_node_whose_tokens_cannot_be_raised() {
    let nodes = || {
        let counting = Faulty(Node::that_can(TokioClock::new(), 0, |can| can.raise = false));
        QuorumConfig::new().node("a", LocalStore::new()).node("b", counting)
    };
    let error = nodes().fenced(true).build().expect_err("no majority could take a token");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let fragment = "the node \"b\" has fencing tokens that cannot be raised";
    assert!(error.to_string().contains(fragment), "{error}");
    assert!(!nodes().build().expect("it needs no tokens").capabilities().tokens);
}

/// A node in the table of the PHP library, in a file of its own.
async fn php_table(clock: &ManualClock, folder: &TempDir, name: &str) -> SqliteNeneStore {
    let nene = NeneConfig::default().settle(Duration::ZERO).clock(Arc::new(clock.clone()));
    let store = SqliteNeneConfig::file(folder.path().join(name)).nene(nene);
    let store = store.connect().await.expect("a sound configuration");
    store.prepare().await.expect("a folder of our own");
    store
}

/// C5: a key stays taken on the nodes in a table of the PHP library after the lease has ended for its holder.
#[tokio::test]
async fn a_quorum_has_the_largest_margin_of_its_nodes() {
    let (clock, folder) = (ManualClock::new(), tempfile::tempdir().expect("a folder"));
    let php = [php_table(&clock, &folder, "a").await, php_table(&clock, &folder, "b").await];
    let margin = php[0].capabilities().margin;
    let [a, b] = php;
    let quorum = QuorumConfig::new()
        .clock(Arc::new(clock.clone()))
        .node("local", LocalStore::with_clock(Arc::new(clock.clone())))
        .node("a", a)
        .node("b", b)
        .build()
        .expect("three nodes");
    assert_eq!(quorum.capabilities().margin, margin);
    let (own, next) = (id("own"), id("next"));
    let granted = quorum.acquire(&ask(&own)).await.expect("all nodes work");
    let AcquireReply::Granted(granted) = granted else { panic!("{granted:?}") };
    let term = granted.remaining.duration().expect("a term");
    clock.advance(term);
    let before = clock.now();
    let refused = quorum.acquire(&ask(&next)).await.expect("all nodes work");
    let AcquireReply::Refused(refused) = refused else { panic!("{refused:?}") };
    quorum.settled().await;
    let after = refused.retry_after.expect("a term");
    assert!(Duration::ZERO < after && after <= margin, "{after:?} of {margin:?}");
    clock.advance(after);
    grant(&quorum, &next).await;
    quorum.settled().await;
    assert!(clock.now() - before <= quorum.capabilities().margin);
    released(&quorum, &next).await;
}

/// The quorum has reported how long a key stays taken, and reports the same for ever.
#[tokio::test]
async fn a_late_node_with_a_longer_margin_takes_no_part() {
    let down = Arc::new(AtomicBool::new(true));
    let url = QuorumUrl::parse("quorum:?node=a:&node=b:&node=c:").expect("a URL");
    let read = |url: &str| -> Result<OpenNode> {
        let (is_late, down) = (url == "c:", Arc::clone(&down));
        Ok(Box::new(move || {
            let is_down = is_late && down.load(Ordering::SeqCst);
            Box::pin(async move {
                if is_down {
                    return Err(Error::unavailable(Effect::NotApplied, "it is down"));
                }
                let margin = if is_late { Duration::from_secs(2) } else { Duration::ZERO };
                Ok(AnyStore::new(Faulty(Node::that_can(TokioClock::new(), 0, |can| {
                    can.margin = margin
                }))))
            })
        }))
    };
    let quorum = url.open(read).await.expect("a majority is open");
    down.store(false, Ordering::SeqCst);
    grant(&quorum, &id("own")).await;
    quorum.settled().await;
    assert_eq!(quorum.capabilities().margin, Duration::ZERO);
    let error = quorum.check().await.expect_err("it is unfit");
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("\"c:\": it keeps keys taken for 2s"), "{error}");
}
