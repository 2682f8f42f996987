//! C8: every takeover, renewal, release and purge compares with the exact lease it saw.

use futures_util::future::BoxFuture;
use leasehold_core::{AcquireReply, EvictRequest, Filter, ReleaseOutcome, ReleaseRequest, Store};

use crate::attempt::Attempt;
use crate::case::{CaseResult, PASSED, cases};
use crate::contend::{contend, together};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    c08_release_by_another_id_leaves_the_holder,
    c08_renewal_by_another_id_changes_nothing,
    c08_release_of_one_reader_leaves_the_others [Shared],
    c08_late_release_leaves_the_successor,
    c08_late_renewal_leaves_the_successor,
    c08_late_keep_leaves_the_successor [Keep],
    c08_late_request_of_many_keys_leaves_the_successors [ManyKeys],
    c08_contenders_for_a_free_key_have_one_winner,
    c08_contenders_for_an_expired_lease_have_one_winner,
    c08_a_purge_beside_a_takeover_removes_no_live_lease,
    c08_a_purge_beside_the_same_id_removes_no_live_lease,
}

async fn c08_release_by_another_id_leaves_the_holder<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let holder = fixture.exclusive("job").with_group("worker");
    fixture.client.grant(&holder).await?;
    let before = fixture.observe().await?;
    let stranger = fixture.exclusive("job").with_group("worker");
    fixture.another().await?.not_held(&stranger).await?;
    fixture.unchanged(&before).await?;
    fixture.client.released(&holder).await?;
    PASSED
}

async fn c08_renewal_by_another_id_changes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let holder = fixture.exclusive("job");
    fixture.client.grant(&holder).await?;
    fixture.pass(3).await;
    let before = fixture.observe().await?;
    fixture.another().await?.lost(&fixture.exclusive("job").with_term(fixture.ticks(40))).await?;
    fixture.unchanged(&before).await?;
    let record = fixture.client.only(holder.filter()).await?;
    fixture.remains(record.remaining(), 7, "the holder's term")?;
    PASSED
}

async fn c08_release_of_one_reader_leaves_the_others<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let readers = [fixture.shared("job"), fixture.shared("job"), fixture.shared("job")];
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    fixture.client.released(&readers[1]).await?;
    fixture.holds("job", &[&readers[0], &readers[2]]).await?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.client.released(&readers[0]).await?;
    fixture.client.released(&readers[2]).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c08_late_release_leaves_the_successor<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (old, new) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&old).await?;
    fixture.pass(10).await;
    fixture.client.grant(&new).await?;
    let before = fixture.observe().await?;
    for _ in 0..2 {
        let ended = fixture.client.release(&old).await?;
        ensure!(!matches!(ended, ReleaseOutcome::Released), "an overrun lease was released");
    }
    fixture.unchanged(&before).await?;
    fixture.client.held(&new, new.term).await?;
    PASSED
}

async fn c08_late_renewal_leaves_the_successor<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (old, new) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&old).await?;
    fixture.pass(10).await;
    fixture.client.grant(&new).await?;
    fixture.pass(4).await;
    let before = fixture.observe().await?;
    fixture.client.lost(&old).await?;
    fixture.unchanged(&before).await?;
    let record = fixture.client.only(new.filter()).await?;
    fixture.remains(record.remaining(), 6, "the successor's term")?;
    PASSED
}

async fn c08_late_keep_leaves_the_successor<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (old, new) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&old).await?;
    fixture.pass(10).await;
    fixture.client.grant(&new).await?;
    let before = fixture.observe().await?;
    let keep = ReleaseRequest::new(vec![old.ending().with_keep(fixture.ticks(40))]);
    let ended = fixture.client.release_all(keep).await?;
    ensure!(!matches!(ended[0], ReleaseOutcome::Kept(_)), "an overrun lease was kept");
    fixture.unchanged(&before).await?;
    fixture.client.released(&new).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c08_late_request_of_many_keys_leaves_the_successors<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let old = fixture.exclusive_all(&["a", "b", "c"]);
    fixture.client.grant(&old).await?;
    fixture.pass(10).await;
    let (a, c) = (fixture.exclusive("a"), fixture.exclusive("c"));
    fixture.client.grant(&a).await?;
    fixture.client.grant(&c).await?;
    fixture.client.lost(&old).await?;
    let ended = fixture.client.release(&old).await?;
    ensure!(!matches!(ended, ReleaseOutcome::Released), "an overrun lease was released");
    fixture.holds("a", &[&a]).await?;
    fixture.holds("b", &[]).await?;
    fixture.holds("c", &[&c]).await?;
    PASSED
}

/// One of many contenders must win, whether or not the store has seen the key before. Where many may split the
/// nodes of a quorum, half of them try again; of two, one has a majority.
async fn one_winner<B: Backing>(fixture: &Fixture<B>, key: &str) -> Result {
    for count in [6, 3, 2] {
        let mut contenders = Vec::new();
        for _ in 0..count {
            contenders.push((fixture.another().await?, fixture.exclusive(key)));
        }
        let answers = contend(contenders.clone()).await?;
        let winners = contenders
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| matches!(answer, AcquireReply::Granted(_)))
            .map(|((_, lease), _)| lease)
            .collect::<Vec<_>>();
        fixture.holds(key, &winners).await?;
        if winners.is_empty() && !fixture.reports.winner && count > 2 {
            continue;
        }
        ensure_eq!(winners.len(), 1, "the winners of {answers:?}");
        break;
    }
    Ok(())
}

async fn c08_contenders_for_a_free_key_have_one_winner<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for round in 0..10 {
        one_winner(fixture, &format!("job:{round}")).await?;
    }
    PASSED
}

async fn c08_contenders_for_an_expired_lease_have_one_winner<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let keys: Vec<_> = (0..10).map(|round| format!("job:{round}")).collect();
    for name in &keys {
        fixture.client.grant(&fixture.exclusive(name).with_term(fixture.ticks(5))).await?;
    }
    fixture.pass(5).await;
    for name in &keys {
        one_winner(fixture, name).await?;
    }
    PASSED
}

async fn c08_a_purge_beside_a_takeover_removes_no_live_lease<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for round in 0..10 {
        let name = format!("job:{round}");
        fixture.client.grant(&fixture.exclusive(&name).with_term(fixture.ticks(1))).await?;
        fixture.pass(1).await;
        let successor = fixture.exclusive(&name);
        purge_beside(fixture, &successor).await?;
        fixture.holds(&name, &[&successor]).await?;
    }
    PASSED
}

async fn c08_a_purge_beside_the_same_id_removes_no_live_lease<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for round in 0..10 {
        let lease = fixture.exclusive(&format!("job:{round}"));
        fixture.client.grant(&lease.clone().with_term(fixture.ticks(1))).await?;
        fixture.pass(1).await;
        purge_beside(fixture, &lease).await?;
        fixture.holds(lease.key().as_str(), &[&lease]).await?;
    }
    PASSED
}

/// Acquires while two others purge.
async fn purge_beside<B: Backing>(fixture: &Fixture<B>, lease: &Attempt) -> Result {
    let (client, lease) = (fixture.another().await?, lease.clone());
    let janitors = [fixture.another().await?, fixture.another().await?];
    let mut tasks: Vec<BoxFuture<'static, Result>> = vec![Box::pin(async move {
        contend(vec![(client.clone(), lease.clone())]).await?;
        client.held(&lease, lease.term).await?;
        Ok(())
    })];
    for janitor in janitors {
        tasks.push(Box::pin(async move {
            janitor.store().evict(&EvictRequest::expired(Filter::default())).await?;
            Ok(())
        }));
    }
    together(tasks).await?;
    Ok(())
}
