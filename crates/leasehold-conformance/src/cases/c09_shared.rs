//! C9: shared is granted only if there is no live exclusive holder and room below the request's own limit.

use leasehold_core::{Acquired, Mode};

use crate::attempt::{all_of, at_most, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::contend::contend;
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Result};

cases! {
    c09_readers_share [Shared],
    c09_a_writer_keeps_readers_out [Shared],
    c09_readers_keep_a_writer_out [Shared],
    c09_exactly_so_many_are_admitted [SharedLimit],
    c09_a_limit_of_one_is_a_mutex [SharedLimit],
    c09_a_limit_binds_its_own_request_alone [SharedLimit],
    c09_a_released_place_is_free_again [SharedLimit],
    c09_a_holder_counts_once [SharedLimit],
    c09_a_kept_place_is_taken [SharedLimit, Keep],
    c09_each_key_counts_for_itself [SharedLimit, ManyKeys],
    c09_first_readers_at_once_are_all_admitted [Shared],
    c09_contenders_never_exceed_the_limit [SharedLimit],
    c09_a_writer_and_readers_at_once_never_mix [Shared],
}

async fn c09_readers_share<B: Backing>(bench: &Bench<B>) -> Verdict {
    let count = bench.can.max_holders.unwrap_or(usize::MAX).min(20);
    let readers: Vec<_> = (0..count).map(|_| bench.shared("job")).collect();
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    bench.holds("job", &readers.iter().collect::<Vec<_>>()).await?;
    PASSED
}

async fn c09_a_writer_keeps_readers_out<B: Backing>(bench: &Bench<B>) -> Verdict {
    let writer = bench.exclusive("job");
    bench.client.grant(&writer).await?;
    bench.client.refuse(&bench.shared("job")).await?;
    bench.holds("job", &[&writer]).await?;
    bench.client.released(&writer).await?;
    bench.client.grant(&bench.shared("job")).await?;
    PASSED
}

async fn c09_readers_keep_a_writer_out<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers = [bench.shared("job"), bench.shared("job")];
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    let writer = bench.exclusive("job");
    for reader in &readers {
        bench.client.refuse(&writer).await?;
        bench.client.released(reader).await?;
    }
    bench.client.grant(&writer).await?;
    bench.holds("job", &[&writer]).await?;
    PASSED
}

async fn c09_exactly_so_many_are_admitted<B: Backing>(bench: &Bench<B>) -> Verdict {
    let permits: Vec<_> = (0..3).map(|_| bench.one("job", at_most(3))).collect();
    for permit in &permits {
        bench.client.grant(permit).await?;
    }
    bench.client.refuse(&bench.one("job", at_most(3))).await?;
    bench.holds("job", &permits.iter().collect::<Vec<_>>()).await?;
    PASSED
}

async fn c09_a_limit_of_one_is_a_mutex<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (first, second) = (bench.one("job", at_most(1)), bench.one("job", at_most(1)));
    bench.client.grant(&first).await?;
    bench.client.refuse(&second).await?;
    bench.client.released(&first).await?;
    bench.client.grant(&second).await?;
    bench.holds("job", &[&second]).await?;
    PASSED
}

async fn c09_a_limit_binds_its_own_request_alone<B: Backing>(bench: &Bench<B>) -> Verdict {
    let narrow = bench.one("job", at_most(1));
    bench.client.grant(&narrow).await?;
    let (wide, free) = (bench.one("job", at_most(2)), bench.shared("job"));
    bench.client.grant(&wide).await?;
    bench.client.grant(&free).await?;
    bench.client.refuse(&bench.one("job", at_most(3))).await?;
    bench.client.grant(&bench.one("job", at_most(4))).await?;
    bench.client.released(&narrow).await?;
    bench.client.refuse(&bench.one("job", at_most(3))).await?;
    PASSED
}

async fn c09_a_released_place_is_free_again<B: Backing>(bench: &Bench<B>) -> Verdict {
    let permits = [bench.one("job", at_most(2)), bench.one("job", at_most(2))];
    for permit in &permits {
        bench.client.grant(permit).await?;
    }
    let mut last = permits[0].clone();
    for _ in 0..5 {
        let next = bench.one("job", at_most(2));
        bench.client.refuse(&next).await?;
        bench.client.released(&last).await?;
        bench.client.grant(&next).await?;
        bench.holds("job", &[&permits[1], &next]).await?;
        last = next;
    }
    PASSED
}

async fn c09_a_holder_counts_once<B: Backing>(bench: &Bench<B>) -> Verdict {
    let permit = bench.one("job", at_most(2));
    bench.client.grant(&permit).await?;
    for _ in 0..3 {
        bench.client.confirm(&permit).await?;
        bench.client.held(&permit, permit.term).await?;
    }
    let second = bench.one("job", at_most(2));
    bench.client.grant(&second).await?;
    bench.client.confirm(&permit).await?;
    bench.holds("job", &[&permit, &second]).await?;
    PASSED
}

async fn c09_a_kept_place_is_taken<B: Backing>(bench: &Bench<B>) -> Verdict {
    let permit = bench.one("job", at_most(2));
    bench.client.grant(&permit).await?;
    bench.client.grant(&bench.one("job", at_most(2))).await?;
    bench.client.keep(&permit, bench.ticks(4)).await?;
    bench.client.refuse(&bench.one("job", at_most(2))).await?;
    bench.pass(4).await;
    bench.client.grant(&bench.one("job", at_most(2))).await?;
    PASSED
}

async fn c09_each_key_counts_for_itself<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.attempt(all_of(&["a", "b"], at_most(2)))).await?;
    bench.client.grant(&bench.attempt(all_of(&["b", "c"], at_most(2)))).await?;
    bench.client.refuse(&bench.one("b", at_most(2))).await?;
    bench.client.grant(&bench.attempt(all_of(&["a", "c"], at_most(2)))).await?;
    bench.client.refuse(&bench.attempt(all_of(&["a", "d"], at_most(2)))).await?;
    bench.holds("d", &[]).await?;
    PASSED
}

/// How many of the attempts were granted; they contend.
async fn granted<B: Backing>(bench: &Bench<B>, modes: &[Mode], key: &str) -> Result<Vec<Mode>> {
    let mut contenders = Vec::new();
    for mode in modes {
        contenders.push((bench.another().await?, bench.one(key, *mode)));
    }
    let answers = contend(contenders).await?;
    let granted = answers.iter().zip(modes);
    let granted = granted.filter(|(answer, _)| matches!(answer, Acquired::Granted(_)));
    Ok(granted.map(|(_, mode)| *mode).collect())
}

async fn c09_first_readers_at_once_are_all_admitted<B: Backing>(bench: &Bench<B>) -> Verdict {
    for round in 0..10 {
        let admitted = granted(bench, &[Mode::SHARED; 5], &format!("job:{round}")).await?;
        ensure_eq!(admitted.len(), 5, "the readers admitted at once");
    }
    PASSED
}

async fn c09_contenders_never_exceed_the_limit<B: Backing>(bench: &Bench<B>) -> Verdict {
    for round in 0..10 {
        let name = format!("job:{round}");
        let admitted = granted(bench, &[at_most(3); 8], &name).await?;
        ensure_eq!(admitted.len(), 3, "the holders admitted at once");
        let seen = bench.observe().await?;
        ensure_eq!(seen.live(&key(&name)).count(), 3, "the live rows");
    }
    PASSED
}

async fn c09_a_writer_and_readers_at_once_never_mix<B: Backing>(bench: &Bench<B>) -> Verdict {
    let modes = [Mode::SHARED, Mode::Exclusive, Mode::SHARED, Mode::Exclusive, Mode::SHARED];
    for round in 0..10 {
        let admitted = granted(bench, &modes, &format!("job:{round}")).await?;
        let expected = if admitted.contains(&Mode::Exclusive) { 1 } else { 3 };
        ensure!(
            admitted.len() == expected || (!bench.tells.winner && admitted.len() < expected),
            "the holders admitted at once: {admitted:?}"
        );
    }
    PASSED
}
