//! C9: shared is granted only if there is no live exclusive holder and room below the request's own limit.

use std::num::NonZeroU32;

use leasehold_core::{AcquireReply, Mode};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::contend::contend;
use crate::ended::Ended;
use crate::failure::{ensure, ensure_eq, take};
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
    c09_no_more_than_the_store_admits [Shared, MaxHolders],
    c09_contenders_never_exceed_what_the_store_admits [Shared, MaxHolders],
}

async fn c09_readers_share<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let count = fixture.can.max_holders.map_or(20, |max| max.get().min(20));
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

/// The most holders that a case makes one by one.
const MANY: u32 = 2_000;

/// As many readers as the store admits, less `room`; or how the case ends.
async fn fill<B: Backing>(
    fixture: &Fixture<B>,
    name: &str,
    room: u32,
) -> Result<Result<Vec<Attempt>, Ended>> {
    let max = fixture.can.max_holders.map_or(u32::MAX, NonZeroU32::get);
    if max > MANY {
        return Ok(Err(Ended::CannotHere(format!(
            "it takes {max} holders, more than a case makes"
        ))));
    }
    let mut readers = Vec::new();
    for _ in 0..max.saturating_sub(room) {
        // The first of them ends first.
        let ticks = if readers.is_empty() { 5 } else { 10 };
        let reader = fixture.shared(name).with_term(fixture.ticks(ticks));
        fixture.client.grant(&reader).await?;
        readers.push(reader);
    }
    Ok(Ok(readers))
}

async fn c09_no_more_than_the_store_admits<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut readers = match fill(fixture, "job", 0).await? {
        Ok(readers) => readers,
        Err(ended) => return Ok(ended),
    };
    let before = fixture.observe().await?;
    let refused = fixture.client.refuse(&fixture.shared("job")).await?;
    let after = take!(Some(after) => after, refused.retry_after, "the refusal {refused:?}");
    fixture.about(after, fixture.ticks(5), "when to retry")?;
    if fixture.can.shared_limit {
        fixture.client.refuse(&fixture.one("job", at_most(u32::MAX))).await?;
    }
    fixture.unchanged(&before).await?;
    // A holder counts once, and another key for itself.
    fixture.client.confirm(&readers[0]).await?;
    fixture.client.grant(&fixture.shared("other")).await?;
    let last = readers.pop().expect("a store admits one holder at least");
    fixture.client.released(&last).await?;
    readers.push(fixture.shared("job"));
    fixture.client.grant(&readers[readers.len() - 1]).await?;
    fixture.client.refuse(&fixture.shared("job")).await?;
    fixture.holds("job", &readers.iter().collect::<Vec<_>>()).await?;
    // The first to end makes room for one.
    fixture.pass(if readers.len() == 1 { 10 } else { 5 }).await;
    fixture.client.grant(&fixture.shared("job")).await?;
    fixture.client.refuse(&fixture.shared("job")).await?;
    PASSED
}

async fn c09_contenders_never_exceed_what_the_store_admits<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let readers = match fill(fixture, "job", 3).await? {
        Ok(readers) => readers,
        Err(ended) => return Ok(ended),
    };
    let admitted = granted(fixture, &[Mode::SHARED; 8], "job").await?;
    let live = fixture.observe().await?.live(&key("job")).count();
    let max = fixture.can.max_holders.and_then(|max| usize::try_from(max.get()).ok());
    let max = max.expect("the case needs a limit");
    ensure_eq!(live, readers.len() + admitted.len(), "the live rows");
    // Each node of a quorum counts for itself, so contenders with different majorities may exceed it.
    let is_quorum = fixture.reports.copies > 1;
    ensure!(
        live == max || is_quorum || (!fixture.reports.winner && live < max),
        "{live} holders were admitted, of {max}"
    );
    PASSED
}
