//! What `prepare` and `check` promise.

use leasehold_core::{Level, Store};

use crate::Backing;
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::contend::together;
use crate::failure::{ensure, ensure_eq};

cases! {
    prepare_again_changes_nothing,
    prepare_in_a_crowd,
    check_changes_nothing,
    check_promises_no_more_than_the_store_can,
    check_names_the_server_alike_to_all,
}

async fn prepare_again_changes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    bench.client.store().prepare().await?;
    bench.another().await?.store().prepare().await?;
    bench.unchanged(&before).await?;
    bench.client.held(&lease, lease.term).await?;
    PASSED
}

async fn prepare_in_a_crowd<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let mut crowd = Vec::new();
    for n in 0..6 {
        let (client, own) = (bench.another().await?, bench.exclusive(&format!("job:{n}")));
        crowd.push(async move {
            client.store().prepare().await?;
            client.grant(&own).await?;
            client.store().prepare().await?;
            client.released(&own).await
        });
    }
    together(crowd).await?;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn check_changes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.exclusive("job")).await?;
    let before = bench.observe().await?;
    let health = bench.client.store().check().await?;
    ensure_eq!(bench.client.store().check().await?.level, health.level, "the level asked again");
    bench.unchanged(&before).await?;
    PASSED
}

async fn check_promises_no_more_than_the_store_can<B: Backing>(bench: &Bench<B>) -> Verdict {
    let health = bench.client.store().check().await?;
    ensure!(
        health.level < Level::Fenced || bench.can.tokens,
        "{} is promised without tokens",
        health.level
    );
    ensure!(
        health.level < Level::Fenced || health.durable,
        "{} is promised by a store that may forget tokens",
        health.level
    );
    ensure!(
        health.level < Level::Fenced || !health.fails_over,
        "{} is promised by a store whose replica may take over without the last writes",
        health.level
    );
    PASSED
}

async fn check_names_the_server_alike_to_all<B: Backing>(bench: &Bench<B>) -> Verdict {
    let identity = bench.client.store().check().await?.identity;
    let other = bench.another().await?.store().check().await?.identity;
    ensure_eq!(other, identity, "the server's identity");
    PASSED
}
