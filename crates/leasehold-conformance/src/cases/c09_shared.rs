//! C9: shared is granted only if there is no live exclusive holder and room below the request's own limit.

use leasehold_core::{AcquireReply, Mode};

use crate::attempt::{all_of, at_most, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::contend::contend;
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    c09_readers_share [Shared],
    c09_a_writer_keeps_readers_out [Shared],
    c09_readers_keep_a_writer_out [Shared],
    c09_exactly_the_limit_is_admitted [SharedLimit],
    c09_a_limit_of_one_is_a_mutex [SharedLimit],
    c09_a_limit_binds_only_its_own_request [SharedLimit],
    c09_a_released_place_is_free_again [SharedLimit],
    c09_a_holder_counts_once [SharedLimit],
    c09_a_kept_place_is_taken [SharedLimit, Keep],
    c09_each_key_counts_for_itself [SharedLimit, ManyKeys],
    c09_first_readers_at_once_are_all_admitted [Shared],
    c09_contenders_never_exceed_the_limit [SharedLimit],
    c09_a_writer_and_readers_at_once_never_mix [Shared],
}

async fn c09_readers_share<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let count = fixture.can.max_holders.unwrap_or(usize::MAX).min(20);
    let readers: Vec<_> = (0..count).map(|_| fixture.shared("job")).collect();
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    fixture.holds("job", &readers.iter().collect::<Vec<_>>()).await?;
    PASSED
}

async fn c09_a_writer_keeps_readers_out<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let writer = fixture.exclusive("job");
    fixture.client.grant(&writer).await?;
    fixture.client.refuse(&fixture.shared("job")).await?;
    fixture.holds("job", &[&writer]).await?;
    fixture.client.released(&writer).await?;
    fixture.client.grant(&fixture.shared("job")).await?;
    PASSED
}

async fn c09_readers_keep_a_writer_out<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let readers = [fixture.shared("job"), fixture.shared("job")];
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    let writer = fixture.exclusive("job");
    for reader in &readers {
        fixture.client.refuse(&writer).await?;
        fixture.client.released(reader).await?;
    }
    fixture.client.grant(&writer).await?;
    fixture.holds("job", &[&writer]).await?;
    PASSED
}

async fn c09_exactly_the_limit_is_admitted<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let permits: Vec<_> = (0..3).map(|_| fixture.one("job", at_most(3))).collect();
    for permit in &permits {
        fixture.client.grant(permit).await?;
    }
    fixture.client.refuse(&fixture.one("job", at_most(3))).await?;
    fixture.holds("job", &permits.iter().collect::<Vec<_>>()).await?;
    PASSED
}

async fn c09_a_limit_of_one_is_a_mutex<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (first, second) = (fixture.one("job", at_most(1)), fixture.one("job", at_most(1)));
    fixture.client.grant(&first).await?;
    fixture.client.refuse(&second).await?;
    fixture.client.released(&first).await?;
    fixture.client.grant(&second).await?;
    fixture.holds("job", &[&second]).await?;
    PASSED
}

async fn c09_a_limit_binds_only_its_own_request<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let narrow = fixture.one("job", at_most(1));
    fixture.client.grant(&narrow).await?;
    let (wide, free) = (fixture.one("job", at_most(2)), fixture.shared("job"));
    fixture.client.grant(&wide).await?;
    fixture.client.grant(&free).await?;
    fixture.client.refuse(&fixture.one("job", at_most(3))).await?;
    fixture.client.grant(&fixture.one("job", at_most(4))).await?;
    fixture.client.released(&narrow).await?;
    fixture.client.refuse(&fixture.one("job", at_most(3))).await?;
    PASSED
}

async fn c09_a_released_place_is_free_again<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let permits = [fixture.one("job", at_most(2)), fixture.one("job", at_most(2))];
    for permit in &permits {
        fixture.client.grant(permit).await?;
    }
    let mut last = permits[0].clone();
    for _ in 0..5 {
        let next = fixture.one("job", at_most(2));
        fixture.client.refuse(&next).await?;
        fixture.client.released(&last).await?;
        fixture.client.grant(&next).await?;
        fixture.holds("job", &[&permits[1], &next]).await?;
        last = next;
    }
    PASSED
}

async fn c09_a_holder_counts_once<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let permit = fixture.one("job", at_most(2));
    fixture.client.grant(&permit).await?;
    for _ in 0..3 {
        fixture.client.confirm(&permit).await?;
        fixture.client.held(&permit, permit.term).await?;
    }
    let second = fixture.one("job", at_most(2));
    fixture.client.grant(&second).await?;
    fixture.client.confirm(&permit).await?;
    fixture.holds("job", &[&permit, &second]).await?;
    PASSED
}

async fn c09_a_kept_place_is_taken<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let permit = fixture.one("job", at_most(2));
    fixture.client.grant(&permit).await?;
    fixture.client.grant(&fixture.one("job", at_most(2))).await?;
    fixture.client.keep(&permit, fixture.ticks(4)).await?;
    fixture.client.refuse(&fixture.one("job", at_most(2))).await?;
    fixture.pass(4).await;
    fixture.client.grant(&fixture.one("job", at_most(2))).await?;
    PASSED
}

async fn c09_each_key_counts_for_itself<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.attempt(all_of(&["a", "b"], at_most(2)))).await?;
    fixture.client.grant(&fixture.attempt(all_of(&["b", "c"], at_most(2)))).await?;
    fixture.client.refuse(&fixture.one("b", at_most(2))).await?;
    fixture.client.grant(&fixture.attempt(all_of(&["a", "c"], at_most(2)))).await?;
    fixture.client.refuse(&fixture.attempt(all_of(&["a", "d"], at_most(2)))).await?;
    fixture.holds("d", &[]).await?;
    PASSED
}

/// How many of the contending attempts were granted.
async fn granted<B: Backing>(fixture: &Fixture<B>, modes: &[Mode], key: &str) -> Result<Vec<Mode>> {
    let mut contenders = Vec::new();
    for mode in modes {
        contenders.push((fixture.another().await?, fixture.one(key, *mode)));
    }
    let answers = contend(contenders).await?;
    let granted = answers.iter().zip(modes);
    let granted = granted.filter(|(answer, _)| matches!(answer, AcquireReply::Granted(_)));
    Ok(granted.map(|(_, mode)| *mode).collect())
}

async fn c09_first_readers_at_once_are_all_admitted<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for round in 0..10 {
        let admitted = granted(fixture, &[Mode::SHARED; 5], &format!("job:{round}")).await?;
        ensure_eq!(admitted.len(), 5, "the readers admitted at once");
    }
    PASSED
}

async fn c09_contenders_never_exceed_the_limit<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for round in 0..10 {
        let name = format!("job:{round}");
        let admitted = granted(fixture, &[at_most(3); 8], &name).await?;
        ensure_eq!(admitted.len(), 3, "the holders admitted at once");
        let seen = fixture.observe().await?;
        ensure_eq!(seen.live(&key(&name)).count(), 3, "the live rows");
    }
    PASSED
}

async fn c09_a_writer_and_readers_at_once_never_mix<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let modes = [Mode::SHARED, Mode::Exclusive, Mode::SHARED, Mode::Exclusive, Mode::SHARED];
    for round in 0..10 {
        let admitted = granted(fixture, &modes, &format!("job:{round}")).await?;
        let expected = if admitted.contains(&Mode::Exclusive) { 1 } else { 3 };
        ensure!(
            admitted.len() == expected || (!fixture.reports.winner && admitted.len() < expected),
            "the holders admitted at once: {admitted:?}"
        );
    }
    PASSED
}
