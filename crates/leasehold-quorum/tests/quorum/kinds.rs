//! Quorums whose nodes are of different kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::faulty::{ask, grant, id, released};
use leasehold_core::{
    AcquireReply, AcquireRequest, AnyStore, Capabilities, Clock, Effect, Error, ErrorKind,
    EvictReply, EvictRequest, Health, Key, ListReply, ListRequest, ManualClock, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};
use leasehold_local::LocalStore;
use leasehold_quorum::{OpenNode, QuorumConfig, QuorumUrl};
use leasehold_sqlite::{NeneConfig, SqliteNeneConfig, SqliteNeneStore};
use tempfile::TempDir;

/// A local store that reports other capabilities.
#[derive(Debug)]
pub(crate) struct Limited {
    store: LocalStore,
    can: Capabilities,
}

impl Limited {
    pub(crate) fn new(limit: impl FnOnce(&mut Capabilities)) -> Self {
        let store = LocalStore::new();
        let mut can = store.capabilities();
        limit(&mut can);
        Self { store, can }
    }
}

impl Store for Limited {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    async fn check(&self) -> Result<Health> {
        self.store.check().await
    }

    async fn prepare(&self) -> Result<()> {
        self.store.prepare().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.can.admit(request)?;
        self.store.acquire(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.can.admit(request)?;
        self.store.renew(request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.can.admit(request)?;
        self.store.release(request).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.store.list(request).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.store.evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.store.subscribe(keys).await
    }
}

#[test]
fn a_fenced_quorum_refuses_a_node_whose_tokens_cannot_be_raised() {
    let nodes = || {
        let counting = Limited::new(|can| can.raise = false);
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
                Ok(AnyStore::new(Limited::new(|can| can.margin = margin)))
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
