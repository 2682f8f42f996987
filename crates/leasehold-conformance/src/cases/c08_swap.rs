//! C8: every takeover, renewal, release and purge compares with the exact lease it saw.

use futures_util::future::BoxFuture;
use leasehold_core::{Acquired, Evict, Filter, LeaseReleased, Release, Store};

use crate::attempt::Attempt;
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::contend::{contend, together};
use crate::failure::{ensure, ensure_eq};
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

async fn c08_release_by_another_id_leaves_the_holder<B: Backing>(bench: &Bench<B>) -> Verdict {
    let holder = bench.exclusive("job").with_owner("worker");
    bench.client.grant(&holder).await?;
    let before = bench.observe().await?;
    let stranger = bench.exclusive("job").with_owner("worker");
    bench.another().await?.not_held(&stranger).await?;
    bench.unchanged(&before).await?;
    bench.client.released(&holder).await?;
    PASSED
}

async fn c08_renewal_by_another_id_changes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let holder = bench.exclusive("job");
    bench.client.grant(&holder).await?;
    bench.pass(3).await;
    let before = bench.observe().await?;
    bench.another().await?.lost(&bench.exclusive("job").with_term(bench.ticks(40))).await?;
    bench.unchanged(&before).await?;
    let record = bench.client.only(holder.filter()).await?;
    bench.remains(record.remaining(), 7, "the holder's term")?;
    PASSED
}

async fn c08_release_of_one_reader_leaves_the_others<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers = [bench.shared("job"), bench.shared("job"), bench.shared("job")];
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    bench.client.released(&readers[1]).await?;
    bench.holds("job", &[&readers[0], &readers[2]]).await?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.client.released(&readers[0]).await?;
    bench.client.released(&readers[2]).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c08_late_release_leaves_the_successor<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (old, new) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&old).await?;
    bench.pass(10).await;
    bench.client.grant(&new).await?;
    let before = bench.observe().await?;
    for _ in 0..2 {
        let ended = bench.client.release(&old).await?;
        ensure!(!matches!(ended, LeaseReleased::Released), "an overrun lease was released");
    }
    bench.unchanged(&before).await?;
    bench.client.held(&new, new.term).await?;
    PASSED
}

async fn c08_late_renewal_leaves_the_successor<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (old, new) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&old).await?;
    bench.pass(10).await;
    bench.client.grant(&new).await?;
    bench.pass(4).await;
    let before = bench.observe().await?;
    bench.client.lost(&old).await?;
    bench.unchanged(&before).await?;
    let record = bench.client.only(new.filter()).await?;
    bench.remains(record.remaining(), 6, "the successor's term")?;
    PASSED
}

async fn c08_late_keep_leaves_the_successor<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (old, new) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&old).await?;
    bench.pass(10).await;
    bench.client.grant(&new).await?;
    let before = bench.observe().await?;
    let keep = Release::new(vec![old.ending().with_keep(bench.ticks(40))]);
    let ended = bench.client.release_all(keep).await?;
    ensure!(!matches!(ended[0], LeaseReleased::Kept(_)), "an overrun lease was kept");
    bench.unchanged(&before).await?;
    bench.client.released(&new).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c08_late_request_of_many_keys_leaves_the_successors<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let old = bench.exclusive_all(&["a", "b", "c"]);
    bench.client.grant(&old).await?;
    bench.pass(10).await;
    let (a, c) = (bench.exclusive("a"), bench.exclusive("c"));
    bench.client.grant(&a).await?;
    bench.client.grant(&c).await?;
    bench.client.lost(&old).await?;
    let ended = bench.client.release(&old).await?;
    ensure!(!matches!(ended, LeaseReleased::Released), "an overrun lease was released");
    bench.holds("a", &[&a]).await?;
    bench.holds("b", &[]).await?;
    bench.holds("c", &[&c]).await?;
    PASSED
}

/// One of many contenders must win, whether or not the store has seen the key before. Where many may split the nodes of
/// a quorum, half of them try again; of two one has a majority.
async fn one_winner<B: Backing>(bench: &Bench<B>, key: &str) -> Result {
    for count in [6, 3, 2] {
        let mut contenders = Vec::new();
        for _ in 0..count {
            contenders.push((bench.another().await?, bench.exclusive(key)));
        }
        let answers = contend(contenders.clone()).await?;
        let winners = contenders
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| matches!(answer, Acquired::Granted(_)))
            .map(|((_, lease), _)| lease)
            .collect::<Vec<_>>();
        bench.holds(key, &winners).await?;
        if winners.is_empty() && !bench.tells.winner && count > 2 {
            continue;
        }
        ensure_eq!(winners.len(), 1, "the winners of {answers:?}");
        break;
    }
    Ok(())
}

async fn c08_contenders_for_a_free_key_have_one_winner<B: Backing>(bench: &Bench<B>) -> Verdict {
    for round in 0..10 {
        one_winner(bench, &format!("job:{round}")).await?;
    }
    PASSED
}

async fn c08_contenders_for_an_expired_lease_have_one_winner<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let keys: Vec<_> = (0..10).map(|round| format!("job:{round}")).collect();
    for name in &keys {
        bench.client.grant(&bench.exclusive(name).with_term(bench.ticks(5))).await?;
    }
    bench.pass(5).await;
    for name in &keys {
        one_winner(bench, name).await?;
    }
    PASSED
}

async fn c08_a_purge_beside_a_takeover_removes_no_live_lease<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    for round in 0..10 {
        let name = format!("job:{round}");
        bench.client.grant(&bench.exclusive(&name).with_term(bench.ticks(1))).await?;
        bench.pass(1).await;
        let successor = bench.exclusive(&name);
        purge_beside(bench, &successor).await?;
        bench.holds(&name, &[&successor]).await?;
    }
    PASSED
}

async fn c08_a_purge_beside_the_same_id_removes_no_live_lease<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    for round in 0..10 {
        let lease = bench.exclusive(&format!("job:{round}"));
        bench.client.grant(&lease.clone().with_term(bench.ticks(1))).await?;
        bench.pass(1).await;
        purge_beside(bench, &lease).await?;
        bench.holds(lease.key().as_str(), &[&lease]).await?;
    }
    PASSED
}

/// Acquires while two others purge.
async fn purge_beside<B: Backing>(bench: &Bench<B>, lease: &Attempt) -> Result {
    let (client, lease) = (bench.another().await?, lease.clone());
    let janitors = [bench.another().await?, bench.another().await?];
    let mut tasks: Vec<BoxFuture<'static, Result>> = vec![Box::pin(async move {
        contend(vec![(client.clone(), lease.clone())]).await?;
        client.held(&lease, lease.term).await?;
        Ok(())
    })];
    for janitor in janitors {
        tasks.push(Box::pin(async move {
            janitor.store().evict(&Evict::expired(Filter::default())).await?;
            Ok(())
        }));
    }
    together(tasks).await?;
    Ok(())
}
