//! `prepare` and `check`.

use leasehold_core::{Level, Store};

use crate::Backing;
use crate::case::{CaseResult, PASSED, cases};
use crate::contend::together;
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;

cases! {
    prepare_again_changes_nothing,
    prepare_in_a_crowd,
    check_changes_nothing,
    check_promises_no_more_than_the_store_can,
    check_identifies_the_server_alike_for_all_clients,
}

async fn prepare_again_changes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    fixture.client.store().prepare().await?;
    fixture.another().await?.store().prepare().await?;
    fixture.unchanged(&before).await?;
    fixture.client.held(&lease, lease.term).await?;
    PASSED
}

async fn prepare_in_a_crowd<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let mut crowd = Vec::new();
    for n in 0..6 {
        let (client, own) = (fixture.another().await?, fixture.exclusive(&format!("job:{n}")));
        crowd.push(async move {
            client.store().prepare().await?;
            client.grant(&own).await?;
            client.store().prepare().await?;
            client.released(&own).await
        });
    }
    together(crowd).await?;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn check_changes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.exclusive("job")).await?;
    let before = fixture.observe().await?;
    let health = fixture.client.store().check().await?;
    ensure_eq!(fixture.client.store().check().await?.level, health.level, "the level asked again");
    fixture.unchanged(&before).await?;
    PASSED
}

async fn check_promises_no_more_than_the_store_can<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let health = fixture.client.store().check().await?;
    ensure!(
        health.level < Level::Fenced || fixture.can.tokens,
        "{} is promised without tokens",
        health.level
    );
    ensure!(
        health.level < Level::Fenced || health.durable || health.level_max_ttl.is_some(),
        "{} is promised for every term by a store that may forget tokens",
        health.level
    );
    ensure!(
        health.level < Level::Fenced || !health.fails_over,
        "{} is promised by a store whose replica may take over without the last writes",
        health.level
    );
    PASSED
}

async fn check_identifies_the_server_alike_for_all_clients<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let identity = fixture.client.store().check().await?.identity;
    let other = fixture.another().await?.store().check().await?.identity;
    ensure_eq!(other, identity, "the server's identity");
    PASSED
}
