//! Interleavings that were shown unsafe for other quorums, and the defects of Redlock clients, by name.

#![expect(clippy::disallowed_methods, reason = "clients run at the same time")]

mod faulty;

use std::sync::Arc;

use faulty::{
    Asked, Cluster, LIMIT, Node, TERM, Way, ask, claims, grant, id, key, ms, release, released,
    renew, renewal, renewed, ttl,
};
use leasehold_core::{
    Acquire, Acquired, Clock, Cursor, Effect, Error, ErrorKind, Evict, Filter, LeaseId,
    LeaseReleased, LeaseRenewed, List, LostReason, NodeOutcome, Page, Remaining, Renew, Renewal,
    Result, Store, Target,
};
use leasehold_quorum::{QuorumConfig, QuorumStore};

fn acquires(node: &Node) -> usize {
    node.asked().iter().filter(|asked| matches!(asked, Asked::Acquire(_))).count()
}

fn releases(node: &Node) -> usize {
    node.asked().iter().filter(|asked| matches!(asked, Asked::Release(_))).count()
}

async fn refused(cluster: &Cluster, lease: &LeaseId) {
    let answer = cluster.store.acquire(&ask(lease)).await;
    assert!(matches!(answer, Ok(Acquired::Refused(_))), "{answer:?}");
}

/// C3: with one id for two tries, the late roll-back of the first deletes the win of the second.
#[tokio::test(start_paused = true)]
async fn a_late_roll_back_does_not_delete_the_win_of_a_later_try_with_the_same_id() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Way::Down]);
    cluster.nodes[1].next(&[Way::SlowRequest(ms(20_000))]);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    // The first try's request is still on its way to n1.
    grant(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 2);
    assert!(cluster.nodes[0].has(&own).await && cluster.nodes[2].has(&own).await);
    refused(&cluster, &id("other")).await;
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
}

/// C3: what an earlier try of the id left on its way to a node will be taken back there, and is no vote.
#[tokio::test(start_paused = true)]
async fn a_node_that_an_earlier_try_of_the_id_may_still_reach_does_not_count() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Way::Down]);
    cluster.nodes[1].next(&[Way::SlowRequest(ms(20_000))]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    cluster.nodes[2].set(Way::Down);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "n1 may yet take it back: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// C3: … nor for the try after that one, which gave up before its turn on the node had come.
#[tokio::test(start_paused = true)]
async fn a_try_that_never_had_its_turn_lets_nobody_past_the_one_before() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[1].next(&[Way::SlowReply(ms(20_000))]);
    cluster.nodes[2].set(Way::Down);
    for _ in 0..3 {
        let again = ask(&own).again(None);
        let error = cluster.store.acquire(&again).await.unwrap_err();
        assert!(error.nodes()[1].error.is_some(), "n1 is still to take back the first: {error}");
    }
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// C3: a release that was sent again because it was not answered may still arrive: until it has, the node does not
/// count for a later try of the id.
#[tokio::test(start_paused = true)]
async fn a_late_attempt_at_a_release_does_not_end_a_later_try_with_the_same_id() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Way::Down]);
    // Of the try, and of the first attempt to take it back; the second is answered.
    cluster.nodes[1].next(&[Way::Up, Way::SlowRequest(ms(20_000))]);
    cluster.nodes[2].next(&[Way::Down]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    tokio::time::sleep(ms(5_000)).await;
    assert!(releases(&cluster.nodes[1]) >= 1);
    cluster.nodes[2].set(Way::Down);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "a release may yet arrive at n1: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

/// A renewal of an earlier life of the id that arrives late ends what does not match it (C3b).
#[tokio::test(start_paused = true)]
async fn a_node_that_an_earlier_renewal_may_still_reach_does_not_count() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.nodes[1].next(&[Way::SlowRequest(ms(20_000))]);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    released(&cluster.store, &own).await;
    cluster.nodes[2].set(Way::Down);
    let error = cluster.store.acquire(&ask(&own)).await.unwrap_err();
    assert!(error.nodes()[1].error.is_some(), "a renewal may yet arrive at n1: {error}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_follows_the_acquires_answer_on_each_node() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[2].next(&[Way::SlowReply(ms(200))]);
    grant(&cluster.store, &own).await;
    let released = released(&cluster.store, &own).await;
    assert!(matches!(released, LeaseReleased::Released), "{released:?}");
    // Not before n2 has answered.
    tokio::time::sleep(ms(199)).await;
    assert_eq!(releases(&cluster.nodes[2]), 0);
    cluster.mend().await;
    assert_eq!(releases(&cluster.nodes[2]), 1);
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_sent_before_the_acquires_answer_is_sent_again() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[2].next(&[Way::SlowRequest(ms(10_000))]);
    grant(&cluster.store, &own).await;
    released(&cluster.store, &own).await;
    tokio::time::sleep(ms(5_000)).await;
    assert_eq!(releases(&cluster.nodes[2]), 1, "a hung acquire does not keep the release back");
    cluster.mend().await;
    assert_eq!(releases(&cluster.nodes[2]), 2);
    assert_eq!(cluster.copies(&own).await, 0);
}

/// The roll-back of a failed first acquire reaches nodes that did not answer, in time or at all.
#[tokio::test(start_paused = true)]
async fn what_acts_after_the_release_limit_is_still_taken_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes[0].next(&[Way::SlowRequest(ms(12_000))]);
    cluster.nodes[1].next(&[Way::SlowRequest(ms(12_000))]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    tokio::time::sleep(ms(11_999)).await;
    assert_eq!(cluster.copies(&own).await, 0);
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// A node that cannot be reached for a while is released again until the limit.
#[tokio::test(start_paused = true)]
async fn a_roll_back_that_fails_is_tried_again_until_its_limit() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    for node in &cluster.nodes[1..] {
        node.set(Way::Down);
    }
    cluster.nodes[0].next(&[Way::Up, Way::Down, Way::Down, Way::Down]);
    cluster.store.acquire(&ask(&own)).await.unwrap_err();
    let began = cluster.clock.now();
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
    assert!(cluster.clock.now() - began < QuorumConfig::DEFAULT_RELEASE_LIMIT);
    // Down for good, it is given up, and the lease ends with its term.
    cluster.nodes[0].next(&[Way::Up]);
    cluster.nodes.iter().for_each(|node| node.set(Way::Down));
    let began = cluster.clock.now();
    cluster.store.acquire(&ask(&id("second"))).await.unwrap_err();
    cluster.store.settled().await;
    let took = cluster.clock.now() - began;
    assert!(took <= QuorumConfig::DEFAULT_RELEASE_LIMIT + LIMIT, "{took:?}");
    assert_eq!(cluster.copies(&id("second")).await, 1);
}

/// A put-back of old terms, delayed, breaks exclusion: there is none.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_misses_its_majority_sends_nothing_more() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[1].set(Way::Down);
    cluster.nodes[2].set(Way::Down);
    cluster.nodes.iter().for_each(Node::forget_asked);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Failed(_)));
    cluster.mend().await;
    for node in &cluster.nodes {
        assert_eq!(node.asked(), [Asked::Renew(vec![own.clone()])]);
    }
    // It is tried again, and the lease is as it was.
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_heals_and_does_not_count_before() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes[1].set(Way::Down);
    // Only n0 still holds it: n2 is free, and is not filled.
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Failed(_)));
    cluster.store.settled().await;
    assert!(!cluster.nodes[2].has(&own).await);
    cluster.nodes[1].set(Way::Up);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    cluster.store.settled().await;
    assert!(cluster.nodes[2].has(&own).await);
    // Now it counts.
    cluster.nodes[1].set(Way::Down);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_put_back_is_as_it_was_written() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    let note = leasehold_core::Note::default().with_comment("nightly").unwrap();
    let owner = leasehold_core::Owner::new("worker").unwrap();
    let full = renewal(&own).with_owner(owner.clone()).with_note(note.clone());
    cluster.store.renew(&Renew::new(vec![full])).await.unwrap();
    cluster.store.settled().await;
    let record = cluster.nodes[2].records().await.remove(0);
    assert_eq!((record.owner, record.note), (Some(owner), note));
    assert_eq!(record.mode, leasehold_core::Mode::Exclusive);
}

/// An expired lease does not revive by being put back where it is absent.
#[tokio::test(start_paused = true)]
async fn an_expired_lease_is_not_put_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    tokio::time::sleep(TERM).await;
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Lost(_)));
    cluster.store.settled().await;
    assert_eq!(cluster.copies(&own).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// Put back on one node by a renewal that was answered before, put back on the next by one that found a majority
/// again: one round of an eviction does not end the lease.
#[tokio::test(start_paused = true)]
async fn an_eviction_goes_round_until_fewer_than_a_majority_have_the_lease() {
    let cluster = Cluster::new(3, false);
    let admin = cluster.another(|config| config);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    // The renewal, then the re-addition.
    cluster.nodes[2].next(&[Way::Up, Way::SlowRequest(ms(5))]);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    tokio::time::sleep(ms(1)).await;
    assert_eq!(acquires(&cluster.nodes[2]), 2, "the re-addition is on its way");
    cluster.nodes[1].next(&[Way::SlowRequest(ms(300))]);
    let evicting = tokio::spawn(async move {
        let target = Target::new(key(), Some(id("own")));
        admin.evict(&Evict::exactly(vec![target], None)).await
    });
    tokio::time::sleep(ms(10)).await;
    assert!(!cluster.nodes[0].has(&own).await && cluster.nodes[2].has(&own).await);
    // n1 was not reached yet, and n2 has it again: a majority, so that n0 gets it too.
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    cluster.store.settled().await;
    assert_eq!(cluster.copies(&own).await, 3);
    let evicted = evicting.await.unwrap().unwrap();
    assert_eq!(evicted.removed.len(), 1);
    assert_eq!(cluster.copies(&own).await, 0);
    let lost = renewed(&cluster.store, &own).await;
    assert!(matches!(lost, LeaseRenewed::Lost(Some(LostReason::Evicted(_)))), "{lost:?}");
    cluster.mend().await;
    grant(&cluster.store, &id("next")).await;
}

/// A break that came while a re-addition was on its way is one all the same.
#[tokio::test(start_paused = true)]
async fn re_adding_after_a_break_does_not_revive_the_lease() {
    let cluster = Cluster::new(3, false);
    let admin = cluster.another(|config| config);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].next(&[Way::Up, Way::SlowRequest(ms(100))]);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    let target = Target::new(key(), Some(own.clone()));
    let evicted = admin.evict(&Evict::exactly(vec![target], None)).await.unwrap();
    assert_eq!(evicted.removed.len(), 1);
    cluster.store.settled().await;
    assert!(cluster.nodes[2].has(&own).await, "the re-addition came after the break");
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Lost(_)));
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_re_addition_on_its_way_is_followed_by_the_release() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes[2].next(&[Way::Up, Way::SlowRequest(ms(5_000))]);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    tokio::time::sleep(ms(1)).await;
    let ended = released(&cluster.store, &own).await;
    assert!(matches!(ended, LeaseReleased::Released), "{ended:?}");
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_released_meanwhile_is_not_put_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(Node::forget_asked);
    // n2 says late that it does not have the lease.
    cluster.nodes[2].next(&[Way::SlowReply(ms(100))]);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(acquires(&cluster.nodes[2]), 0);
    assert_eq!(cluster.copies(&own).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_at_once_after_the_renewal_leaves_nothing_to_put_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes.iter().for_each(Node::forget_asked);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    // The re-addition was decided, and is not on its way yet.
    released(&cluster.store, &own).await;
    cluster.mend().await;
    assert_eq!(acquires(&cluster.nodes[2]), 0);
    assert_eq!(cluster.copies(&own).await, 0);
}

/// What a failed re-acquire put on a node, and will take back, is no part of a majority.
#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_count_what_may_yet_be_rolled_back() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[2].forget();
    cluster.nodes[1].set(Way::Down);
    cluster.nodes[2].next(&[Way::SlowReply(ms(2_000))]);
    let error = cluster.store.acquire(&ask(&own).again(None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(cluster.nodes[2].has(&own).await, "it acted there");
    // n0 has it, n1 is down, and n2 will lose it again.
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Failed(_)));
    cluster.mend().await;
    assert!(!cluster.nodes[2].has(&own).await);
    assert_eq!(cluster.copies(&own).await, 2);
}

/// A caller that goes away leaves the requests, which may be sent again to learn the outcome.
#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_runs_on_and_may_be_sent_again() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    cluster.nodes.iter().for_each(|node| node.next(&[Way::SlowRequest(ms(100))]));
    let dropped = tokio::time::timeout(ms(50), cluster.store.acquire(&ask(&own))).await;
    assert!(dropped.is_err());
    match cluster.store.acquire(&ask(&own)).await {
        Ok(Acquired::Granted(granted)) => assert!(!granted.fresh),
        other => panic!("{other:?}"),
    }
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 3);
}

#[tokio::test(start_paused = true)]
async fn one_hung_node_costs_no_more_than_its_time_out() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[1].set(Way::Hung);
    let own = id("own");
    let began = || cluster.clock.now();
    let at_once = |since: std::time::Duration| assert_eq!(cluster.clock.now() - since, ms(0));
    let within = |since| assert!(cluster.clock.now() - since <= LIMIT);
    let since = began();
    grant(&cluster.store, &own).await;
    at_once(since);
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    at_once(since);
    refused(&cluster, &id("other")).await;
    at_once(since);
    assert!(matches!(released(&cluster.store, &own).await, LeaseReleased::Released));
    at_once(since);
    let since = began();
    cluster.store.list(&List::new(Filter::default().with_key(key()))).await.unwrap();
    within(since);
    let since = began();
    cluster.store.check().await.unwrap();
    within(since);
    let since = began();
    cluster.store.subscribe(&[key()]).await.unwrap();
    within(since);
    cluster.nodes[2].set(Way::Hung);
    let since = began();
    cluster.store.acquire(&ask(&id("second"))).await.unwrap_err();
    within(since);
    cluster.mend().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_term_gives_a_node_a_twentieth_of_it() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[0].set(Way::Hung);
    cluster.nodes[1].set(Way::Hung);
    for (term, limit) in [(2_000, 100), (100, 10), (30_000, 500)] {
        let since = cluster.clock.now();
        let request = Acquire::new(id("own"), claims(), ttl(ms(term)));
        cluster.store.acquire(&request).await.unwrap_err();
        assert_eq!(cluster.clock.now() - since, ms(limit), "a term of {term} ms");
    }
    cluster.mend().await;
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_no_refusal() {
    let cluster = Cluster::new(3, false);
    cluster.nodes[1].set(Way::Quarantined(ms(40_000)));
    grant(&cluster.store, &id("one node may be")).await;
    released(&cluster.store, &id("one node may be")).await;
    cluster.store.settled().await;
    cluster.nodes[2].set(Way::Quarantined(ms(50_000)));
    let error = cluster.store.acquire(&ask(&id("two may not"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    // Until the second of three is free: n0 now, n1 after 40 s.
    assert_eq!(error.retry_after(), Some(ms(40_000)));
    cluster.mend().await;
    assert_eq!(cluster.copies(&id("two may not")).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_a_majority_is_free_and_whose_end_that_is() {
    let cluster = Cluster::new(3, false);
    grant(&cluster.nodes[0].store(), &id("minority")).await;
    for node in &cluster.nodes[1..] {
        let request = Acquire::new(id("majority"), claims(), ttl(ms(20_000)));
        node.store().acquire(&request).await.unwrap();
    }
    // n0 would be free after 30 s, which is after a majority is, n1 and n2 after 20 s.
    cluster.nodes[0].next(&[Way::SlowReply(ms(100))]);
    match cluster.store.acquire(&ask(&id("own"))).await {
        Ok(Acquired::Refused(refused)) => {
            let holder = match refused.why {
                leasehold_core::Why::Held(Some(holder)) => holder,
                other => panic!("{other:?}"),
            };
            assert_eq!(refused.retry_after, Some(ms(20_000)));
            assert_eq!(holder.id, Some(id("majority")));
            assert!(holder.token.is_none(), "tokens of single nodes mean nothing");
        }
        other => panic!("{other:?}"),
    }
}

/// A listing tells nothing from fewer nodes than a majority: none of them may be among the holders (C10).
#[tokio::test(start_paused = true)]
async fn a_listing_needs_a_majority() {
    let cluster = Cluster::new(3, false);
    grant(&cluster.store, &id("own")).await;
    cluster.store.settled().await;
    for filter in [Filter::default(), Filter::default().with_key(key())] {
        cluster.nodes[1].set(Way::Down);
        let mut request = List::new(filter.clone());
        let mut records = 0;
        let mut errors = 0;
        loop {
            let page = cluster.store.list(&request).await.unwrap();
            records += page.records.len();
            let shown_by = page.records.iter().map(|record| record.node.as_deref());
            assert!(shown_by.eq(
                page.nodes.iter().filter_map(|node| {
                    node.error.is_none().then_some(Some(node.node.as_str()))
                })
            ));
            errors += page.nodes.iter().filter(|node| node.error.is_some()).count();
            let Some(next) = page.next else { break };
            request = request.with_cursor(next);
        }
        assert_eq!((records, errors), (2, 1));
        cluster.nodes[0].set(Way::Down);
        let mut request = List::new(filter);
        let error = loop {
            match cluster.store.list(&request).await {
                Ok(page) => {
                    request = request.with_cursor(page.next.expect("no majority was asked"))
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        cluster.mend().await;
    }
}

/// What a node must not do to the listing of the others, when its page goes wrong.
#[derive(Debug, Clone, Copy)]
enum Misled {
    /// More records than were asked for.
    TooMany,
    /// A page that is followed by itself.
    Again,
    /// A failure that does not pass.
    Denied,
}

impl Misled {
    fn page(self, mut page: Page, request: &List) -> Result<Page> {
        match self {
            Self::TooMany => {
                let record = page.records[0].clone();
                page.records.resize(request.limit() + 1, record);
            }
            Self::Again => page.next = Some(Cursor::new(vec![7])),
            Self::Denied if request.cursor().is_some() => return Err(Error::denied("no more")),
            Self::Denied => page.next = Some(Cursor::new(vec![7])),
        }
        Ok(page)
    }
}

/// All pages, of which there must be an end.
async fn list_all(store: &QuorumStore, filter: &Filter) -> Result<Page> {
    let mut request = List::new(filter.clone()).with_limit(2);
    let mut whole = Page::new(Vec::new(), None);
    for _ in 0..20 {
        whole.append(store.list(&request).await?);
        let Some(next) = whole.next.take() else { return Ok(whole) };
        request = request.with_cursor(next);
    }
    panic!("a listing without end: {:?}", whole.nodes);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_listing_goes_wrong_has_failed_and_no_other_has() {
    for misled in [Misled::TooMany, Misled::Again, Misled::Denied] {
        let cluster = Cluster::new(3, false);
        grant(&cluster.store, &id("own")).await;
        cluster.store.settled().await;
        for filter in [Filter::default(), Filter::default().with_key(key())] {
            cluster.nodes[1].mislead(Some(Arc::new(move |page, ask| misled.page(page, ask))));
            cluster.nodes[2].mislead(None);
            let whole = list_all(&cluster.store, &filter).await.expect("two nodes are fine");
            let failed: Vec<_> = whole.nodes.iter().map(|node| node.error.is_some()).collect();
            assert_eq!(failed, [false, true, false], "{misled:?}");
            assert_eq!(whole.holders().unwrap().len(), 1);
            cluster.nodes[2].mislead(Some(Arc::new(move |page, ask| misled.page(page, ask))));
            let error = list_all(&cluster.store, &filter).await.expect_err("one node is fine");
            let kind = match misled {
                Misled::Denied => ErrorKind::Denied,
                _ => ErrorKind::Unexpected,
            };
            assert_eq!(error.kind(), kind, "{misled:?}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_leases_are_renewed_in_one_exchange_with_each_node() {
    let cluster = Cluster::new(3, false);
    let mut leases = Vec::new();
    for n in 0..50 {
        let name = leasehold_core::Key::new(&format!("job:{n}")).unwrap();
        let one = leasehold_core::Claims::one(name, leasehold_core::Mode::Exclusive);
        let request = Acquire::new(id(&format!("own {n}")), one.clone(), ttl(TERM));
        assert!(matches!(cluster.store.acquire(&request).await, Ok(Acquired::Granted(_))));
        leases.push(Renewal::extend(id(&format!("own {n}")), one, ttl(TERM)));
    }
    cluster.store.settled().await;
    cluster.nodes.iter().for_each(Node::forget_asked);
    cluster.nodes[1].forget();
    let renewed = cluster.store.renew(&Renew::new(leases)).await.unwrap();
    assert_eq!(renewed.leases.len(), 50);
    let is_held = |lease: &LeaseRenewed| matches!(lease, LeaseRenewed::Held(Remaining::For(_)));
    assert!(renewed.leases.iter().all(is_held));
    cluster.mend().await;
    assert_eq!((cluster.nodes[0].asked().len(), cluster.nodes[2].asked().len()), (1, 1));
    assert_eq!(cluster.nodes[1].records().await.len(), 50);
}

/// redlock: the roll-back of a failed re-acquire deleted the lock that was held.
#[tokio::test(start_paused = true)]
async fn redlock_01_a_failed_re_acquire_keeps_what_was_held() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[1].set(Way::Down);
    cluster.nodes[2].set(Way::Down);
    cluster.store.acquire(&ask(&own).again(None)).await.unwrap_err();
    cluster.mend().await;
    assert_eq!(cluster.copies(&own).await, 3);
    refused(&cluster, &id("other")).await;
}

/// redlock: a renewal that reached a minority was left there, and a restarted node was never filled again.
#[tokio::test(start_paused = true)]
async fn redlock_02_quorum_does_not_erode_over_restarts_of_its_nodes() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    for restarted in &cluster.nodes {
        restarted.forget();
        assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
        cluster.store.settled().await;
        assert_eq!(cluster.copies(&own).await, 3);
    }
}

/// redlock: extending a lost lock never returned.
#[tokio::test(start_paused = true)]
async fn redlock_03_extending_a_lost_lock_returns_at_once() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    let since = cluster.clock.now();
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Lost(_)));
    assert_eq!(cluster.clock.now(), since);
}

/// redlock: one node held by somebody else blocked acquire-or-extend for ever.
#[tokio::test(start_paused = true)]
async fn redlock_04_one_foreign_minority_node_does_not_block() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.nodes[0].store(), &id("foreign")).await;
    let since = cluster.clock.now();
    for _ in 0..2 {
        assert!(matches!(
            cluster.store.acquire(&ask(&own).again(None)).await,
            Ok(Acquired::Granted(_))
        ));
    }
    assert!(matches!(renewed(&cluster.store, &own).await, LeaseRenewed::Held(_)));
    assert_eq!(cluster.clock.now(), since);
    assert!(matches!(released(&cluster.store, &own).await, LeaseReleased::Released));
    cluster.mend().await;
    assert!(cluster.nodes[0].has(&id("foreign")).await);
}

/// redlock: one hung or refusing node spent the term of every lock.
#[tokio::test(start_paused = true)]
async fn redlock_05_a_minority_that_hangs_or_fails_does_not_cost_a_short_term() {
    for way in [Way::Hung, Way::Down, Way::SlowReply(ms(2_000))] {
        let cluster = Cluster::new(3, false);
        cluster.nodes[0].set(way);
        let request = Acquire::new(id("own"), claims(), ttl(ms(100)));
        let since = cluster.clock.now();
        match cluster.store.acquire(&request).await {
            Ok(Acquired::Granted(granted)) => {
                assert_eq!(granted.remaining, Remaining::For(ms(100)), "{way:?}");
            }
            other => panic!("{way:?}: {other:?}"),
        }
        assert_eq!(cluster.clock.now(), since, "{way:?}");
        cluster.mend().await;
    }
}

/// redlock: failures of nodes were reported as "already held".
#[tokio::test(start_paused = true)]
async fn redlock_06_node_failures_are_shown_and_are_not_held() {
    let cluster = Cluster::new(3, false);
    cluster.nodes.iter().for_each(|node| node.set(Way::Down));
    let error = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    assert_eq!((error.store(), error.operation()), (Some("quorum"), Some("acquire")));
    // Two of three decide.
    assert!(error.nodes()[..2].iter().all(|node| node.error.is_some()));
    assert!(error.to_string().contains("n1: the node is down"), "{error}");
    // One of three holds, two fail: neither held nor free.
    grant(&cluster.nodes[0].store(), &id("other")).await;
    cluster.nodes[0].set(Way::Up);
    let error = cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let of_n0 = &error.nodes()[0];
    assert!(of_n0.error.is_none() && matches!(of_n0.leases[..], [NodeOutcome::Refused]));
    for answer in [
        cluster.store.renew(&renew(&id("own"))).await.map(drop),
        cluster.store.release(&release(&id("own"))).await.map(drop),
    ] {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        assert_eq!(error.nodes().len(), 3);
    }
    cluster.mend().await;
}

/// redlock: a lost reply was taken for somebody else's lock.
#[tokio::test(start_paused = true)]
async fn redlock_09_a_lost_reply_leaves_no_orphan() {
    let cluster = Cluster::new(3, false);
    cluster.nodes.iter().for_each(|node| node.next(&[Way::SlowReply(ms(3_000))]));
    cluster.store.acquire(&ask(&id("own"))).await.unwrap_err();
    cluster.mend().await;
    assert_eq!(cluster.copies(&id("own")).await, 0);
    grant(&cluster.store, &id("next")).await;
}

/// redlock: no node at all was an endless retry, and even numbers passed without a word.
#[tokio::test(start_paused = true)]
async fn redlock_15_no_node_is_refused_and_an_even_number_is_a_hazard() {
    let error = QuorumConfig::new().open().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::None));
    for (count, hazards) in [(1, 1), (2, 2), (3, 0), (4, 1), (5, 0)] {
        let cluster = Cluster::new(count, false);
        let health = cluster.store.check().await.unwrap();
        assert_eq!(health.hazards.len(), hazards, "{count} nodes: {:?}", health.hazards);
        // Two nodes need both.
        cluster.nodes[0].set(Way::Down);
        let survives = count >= 3;
        let answer = cluster.store.acquire(&ask(&id("own"))).await;
        assert_eq!(matches!(answer, Ok(Acquired::Granted(_))), survives, "{count}: {answer:?}");
        cluster.mend().await;
    }
}

/// redlock: a release never told whether the lock was still ours, nor where.
#[tokio::test(start_paused = true)]
async fn redlock_16_a_release_tells_what_happened_node_by_node() {
    let cluster = Cluster::new(3, false);
    let own = id("own");
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    cluster.nodes[0].forget();
    cluster.nodes[1].next(&[Way::SlowReply(ms(10))]);
    cluster.nodes[2].next(&[Way::SlowReply(ms(20))]);
    let answer = cluster.store.release(&release(&own)).await.unwrap();
    assert!(matches!(answer.leases[..], [LeaseReleased::Released]));
    let said: Vec<_> = answer.nodes().iter().map(|node| format!("{:?}", node.leases)).collect();
    assert_eq!(said, ["[NotHeld]", "[Released]", "[Released]"]);
    cluster.store.settled().await;
    assert!(matches!(released(&cluster.store, &own).await, LeaseReleased::NotHeld));
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    tokio::time::sleep(TERM).await;
    assert!(matches!(released(&cluster.store, &own).await, LeaseReleased::Expired));
    cluster.nodes[1].set(Way::Down);
    cluster.nodes[2].set(Way::Down);
    let error = cluster.store.release(&release(&own)).await.unwrap_err();
    let failed = error.nodes().iter().filter(|node| node.error.is_some()).count();
    assert_eq!(failed, 2);
    cluster.mend().await;
}
