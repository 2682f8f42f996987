use super::*;

impl Setup {
    /// The locks that mongo-lock's tests of `Status` look for; returns a time between the first three and the others.
    async fn with_locks(&self) -> SystemTime {
        let john = |mode, resource| {
            request(resource, "aaaa", mode, 3_600).with_group(of("john")).with_note(at("host.name"))
        };
        let smith = |mode, resource| request(resource, "bbbb", mode, 0).with_group(of("smith"));
        assert!(self.lock(john(Mode::Exclusive, "resource1"), 3_600).await);
        assert!(self.lock(john(Mode::SHARED, "resource2"), 3_600).await);
        assert!(self.lock(smith(Mode::SHARED, "resource2"), 0).await);
        self.passes(1);
        let between = self.now();
        self.passes(1);
        assert!(self.s_lock("resource2", "cccc", 7_200).await);
        assert!(self.lock(smith(Mode::Exclusive, "resource3"), 0).await);
        assert!(self.s_lock("resource4", "cccc", 7_200).await);
        between
    }
}

#[tokio::test]
async fn status_filter_ttl_gte() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let found = setup.found(StatusFilter::default().ttl_from(3_700)).await;
    assert_eq!(found, [is("resource4", "cccc"), is("resource2", "cccc")]);
}

#[tokio::test]
async fn status_filter_ttl_lt() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    assert_eq!(setup.found(StatusFilter::default().ttl_below(600)).await, []);
}

#[tokio::test]
async fn status_filter_created_after() {
    let setup = Setup::new().await;
    let between = setup.with_locks().await;
    let found = setup.found(StatusFilter::default().created_after(between)).await;
    let expected = [is("resource4", "cccc"), is("resource3", "bbbb"), is("resource2", "cccc")];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn status_filter_created_before() {
    let setup = Setup::new().await;
    let between = setup.with_locks().await;
    let filter = StatusFilter::default().created_before(between);
    let found = setup.store.status(&filter).await.unwrap();
    let host = |at: usize| (found[at].owner.as_deref(), found[at].host.as_deref());
    assert_eq!(host(0), (Some("smith"), None));
    assert_eq!(host(2), (Some("john"), Some("host.name")));
    let expected = [is("resource2", "bbbb"), is("resource2", "aaaa"), is("resource1", "aaaa")];
    assert_eq!(found.into_iter().map(names).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn status_filter_owner() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let found = setup.found(StatusFilter::default().owner("smith")).await;
    assert_eq!(found, [is("resource3", "bbbb"), is("resource2", "bbbb")]);
}

#[tokio::test]
async fn status_filter_multiple() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let filter =
        StatusFilter::default().ttl_below(5_000).resource("resource1").lock_id(&id("aaaa"));
    assert_eq!(setup.found(filter).await, [is("resource1", "aaaa")]);
}

/// A lock of ours ends a second later for others than for its holder.
#[tokio::test]
async fn status_ttl_value() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    assert!(setup.x_lock("resource2", "bbbb", 0).await);
    assert!(setup.x_lock("resource3", "cccc", 1).await);
    assert_eq!(setup.ttls("aaaa").await, [Some(3_601)]);
    assert_eq!(setup.ttls("bbbb").await, [None]);
    setup.passes(2_100);
    assert_eq!(setup.ttls("aaaa").await, [Some(3_598)]);
    assert_eq!(setup.ttls("cccc").await, [Some(0)]);
}

#[tokio::test]
async fn both_bounds_of_a_range_apply_to_both_modes() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 100).await);
    assert!(setup.s_lock("s", "aaaa", 100).await);
    setup.passes(10);
    let now = setup.now();
    let ago = |seconds| now - Duration::from_secs(seconds);
    let earlier = StatusFilter::default().created_after(ago(10)).created_before(ago(5));
    assert_eq!(setup.found(earlier).await, []);
    assert_eq!(setup.found(StatusFilter::default().ttl_from(10).ttl_below(50)).await, []);
    let lasting = StatusFilter::default().ttl_from(10).ttl_below(500).created_after(ago(5));
    assert_eq!(setup.found(lasting).await.len(), 2);
}

#[tokio::test]
async fn no_second_is_missing_between_bounds() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("r", "aaaa", 60).await);
    setup.passes(1_500);
    assert_eq!(setup.ttls("aaaa").await, [Some(59)]);
    assert_eq!(setup.found(StatusFilter::default().ttl_below(60)).await.len(), 1);
    assert_eq!(setup.found(StatusFilter::default().ttl_from(60)).await, []);
    assert_eq!(setup.found(StatusFilter::default().ttl_from(59)).await.len(), 1);
    setup.passes(100_000);
    assert_eq!(setup.found(StatusFilter::default().ttl_below(1)).await.len(), 1);
}

/// A page has 1,000 documents.
#[tokio::test]
async fn many_locks_are_all_found() {
    let setup = Setup::new().await;
    let documents = (0..2_500).map(|at| {
        leasehold_mongodb::mongodb::bson::doc! {
            "resource": format!("r{at}"),
            "exclusive": { "lockId": "aaaa", "acquired": true, "_id": ObjectId::new() },
            "shared": { "count": 0, "locks": [] },
        }
    });
    setup.collection.insert_many(documents).await.unwrap();
    let all = setup.all().await;
    assert_eq!(all.len(), 2_500);
    assert_eq!(all[0].0, "r2499");
}
