//! C3: a lease id names one attempt; while its lease lives, the same request confirms it.

use leasehold_core::{Acquired, LeaseId, Mode, Note, Remaining, Store, Ttl};

use crate::attempt::{all_of, at_most};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases, invalid_input};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Failure};

cases! {
    c03_same_id_returns_the_same_token,
    c03_same_id_of_many_keys_returns_the_same_token [ManyKeys],
    c03_another_client_may_send_the_request_again,
    c03_a_renewal_may_be_sent_again,
    c03_same_id_extends_to_the_larger_term,
    c03_same_id_never_shortens,
    c03_same_id_leaves_never_alone [Never],
    c03_same_id_in_another_mode_is_invalid [Shared],
    c03_same_id_in_another_mode_on_one_key_is_invalid [Shared, ManyKeys],
    c03_limit_is_no_part_of_identity [SharedLimit],
    c03_owner_and_note_stay_as_first_written [TellsOwner, TellsNote],
    c03_second_id_of_the_same_owner_is_refused,
    c03_again_decides_alike,
    c03_ended_id_is_granted_afresh,
    c03_expired_id_is_granted_afresh,
    c03_same_id_on_another_key_is_another_lease [Shared],
    c03_ids_are_compared_verbatim,
    c03_ids_of_any_bytes_are_kept,
}

async fn c03_same_id_returns_the_same_token<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let first = bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    for _ in 0..3 {
        let again = bench.client.confirm(&lease).await?;
        ensure_eq!(again.token, first.token, "the token of the same request sent again");
        bench.remains(again.remaining, 10, "its term")?;
    }
    bench.unchanged(&before).await?;
    bench.client.released(&lease).await?;
    bench.client.not_held(&lease).await?;
    PASSED
}

async fn c03_same_id_of_many_keys_returns_the_same_token<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["a", "b"]);
    let first = bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    let again = bench.client.confirm(&lease).await?;
    ensure_eq!(again.token, first.token, "the token of the same request sent again");
    bench.unchanged(&before).await?;
    PASSED
}

async fn c03_another_client_may_send_the_request_again<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let first = bench.client.grant(&lease).await?;
    let other = bench.another().await?;
    ensure_eq!(other.confirm(&lease).await?.token, first.token, "the token told to the other");
    other.held(&lease, lease.term).await?;
    other.released(&lease).await?;
    bench.holds("job", &[]).await?;
    bench.client.not_held(&lease).await?;
    PASSED
}

async fn c03_a_renewal_may_be_sent_again<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let token = bench.client.grant(&lease).await?.token;
    bench.pass(4).await;
    let before = bench.observe().await?;
    let other = bench.another().await?;
    for client in [&bench.client, &bench.client, &other] {
        bench.remains(client.held(&lease, lease.term).await?, 10, "the renewed term")?;
    }
    bench.unchanged(&before).await?;
    ensure_eq!(bench.client.confirm(&lease).await?.token, token, "the token");
    PASSED
}

async fn c03_same_id_extends_to_the_larger_term<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(4).await;
    let again = bench.client.confirm(&lease).await?;
    bench.remains(again.remaining, 10, "the term counted anew")?;
    let longer = lease.clone().with_term(bench.ticks(20));
    bench.remains(bench.client.confirm(&longer).await?.remaining, 20, "the longer term")?;
    bench.pass(15).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass(5).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c03_same_id_never_shortens<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(2).await;
    let shorter = lease.clone().with_term(bench.ticks(3));
    let again = bench.client.confirm(&shorter).await?;
    bench.remains(again.remaining, 8, "what remains, never what was asked")?;
    bench.pass(4).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    PASSED
}

async fn c03_same_id_leaves_never_alone<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.held(&lease, Ttl::NEVER).await?;
    let again = bench.client.confirm(&lease).await?;
    ensure_eq!(again.remaining, Remaining::Never, "what remains");
    bench.pass(11).await;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_same_id_in_another_mode_is_invalid<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, held, asked) in
        [("a", Mode::Exclusive, Mode::SHARED), ("b", Mode::SHARED, Mode::Exclusive)]
    {
        let lease = bench.one(name, held);
        bench.client.grant(&lease).await?;
        let before = bench.observe().await?;
        let other = lease.clone().with_claims(all_of(&[name], asked));
        invalid_input(&bench.client.reject(&other).await?)?;
        bench.unchanged(&before).await?;
        bench.client.confirm(&lease).await?;
    }
    PASSED
}

async fn c03_same_id_in_another_mode_on_one_key_is_invalid<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let lease = bench.one("b", Mode::SHARED);
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    let wider = lease.clone().with_claims(all_of(&["a", "b"], Mode::Exclusive));
    invalid_input(&bench.client.reject(&wider).await?)?;
    bench.unchanged(&before).await?;
    PASSED
}

async fn c03_limit_is_no_part_of_identity<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.one("job", at_most(2));
    let first = bench.client.grant(&lease).await?;
    bench.client.grant(&bench.one("job", at_most(2))).await?;
    for mode in [at_most(1), at_most(7), Mode::SHARED] {
        let other = lease.clone().with_claims(all_of(&["job"], mode));
        let again = bench.client.confirm(&other).await?;
        ensure_eq!(again.token, first.token, "the token when asked with {mode}");
        bench.client.held(&other, other.term).await?;
    }
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 1, "the rows of the lease");
    PASSED
}

async fn c03_owner_and_note_stay_as_first_written<B: Backing>(bench: &Bench<B>) -> Verdict {
    let note = Note::default().with_comment("first")?;
    let lease = bench.exclusive("job").with_owner("first").with_note(note.clone());
    bench.client.grant(&lease).await?;
    let changed = lease.clone().with_owner("second");
    bench.client.confirm(&changed.with_note(Note::default().with_comment("second")?)).await?;
    let seen = bench.observe().await?;
    for row in seen.held(&lease.id) {
        ensure_eq!(row.owner, lease.owner, "the owner");
        ensure_eq!(row.note, note, "the note");
    }
    let record = bench.client.only(lease.filter()).await?;
    ensure_eq!((record.owner, record.note), (lease.owner.clone(), note), "what is listed");
    PASSED
}

/// No hidden re-entrance: an owner is a label and not an identity.
async fn c03_second_id_of_the_same_owner_is_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job").with_owner("worker");
    bench.client.grant(&lease).await?;
    bench.client.refuse(&bench.exclusive("job").with_owner("worker")).await?;
    bench.holds("job", &[&lease]).await?;
    if bench.can.shared {
        let reader = bench.shared("doc").with_owner("worker");
        bench.client.grant(&reader).await?;
        bench.client.refuse(&bench.exclusive("doc").with_owner("worker")).await?;
        bench.holds("doc", &[&reader]).await?;
    }
    PASSED
}

/// `again` tells a quorum what not to take back; a single store decides as without it.
async fn c03_again_decides_alike<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let request = lease.request().again(None);
    let first = match Store::acquire(bench.client.store(), &request).await? {
        Acquired::Granted(granted) => granted,
        other => return Err(Failure::new(format!("a free key was not granted: {other:?}"))),
    };
    ensure!(first.fresh, "a grant of a lease that did not live was not fresh");
    let request = lease.request().again(first.token);
    match Store::acquire(bench.client.store(), &request).await? {
        Acquired::Granted(granted) => {
            ensure!(!granted.fresh, "a live lease was granted afresh");
            ensure_eq!(granted.token, first.token, "its token");
        }
        other => return Err(Failure::new(format!("a live lease was refused: {other:?}"))),
    }
    let other = bench.exclusive("job").request().again(first.token);
    let answer = Store::acquire(bench.client.store(), &other).await?;
    let refused = matches!(answer, Acquired::Refused(_));
    ensure!(refused, "another id entered with the holder's token: {answer:?}");
    PASSED
}

async fn c03_ended_id_is_granted_afresh<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job").with_id(&LeaseId::foreign(b"worker-7")?);
    let first = bench.client.grant(&lease).await?;
    bench.client.released(&lease).await?;
    let second = bench.client.grant(&lease).await?;
    ensure!(
        !bench.can.tokens || second.token > first.token,
        "the token of the second lease is {:?} after {:?}",
        second.token,
        first.token
    );
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_expired_id_is_granted_afresh<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let first = bench.client.grant(&lease).await?;
    bench.pass(10).await;
    let second = bench.client.grant(&lease).await?;
    bench.remains(second.remaining, 10, "the new term")?;
    ensure!(
        !bench.can.tokens || second.token > first.token,
        "the token of the second lease is {:?} after {:?}",
        second.token,
        first.token
    );
    PASSED
}

/// A store judges by the keys that are named.
async fn c03_same_id_on_another_key_is_another_lease<B: Backing>(bench: &Bench<B>) -> Verdict {
    let id = LeaseId::foreign(b"worker-7")?;
    let writer = bench.exclusive("a").with_id(&id);
    let reader = bench.shared("b").with_id(&id);
    bench.client.grant(&writer).await?;
    bench.client.grant(&reader).await?;
    bench.client.released(&writer).await?;
    bench.holds("a", &[]).await?;
    bench.holds("b", &[&reader]).await?;
    bench.client.held(&reader, reader.term).await?;
    PASSED
}

async fn c03_ids_are_compared_verbatim<B: Backing>(bench: &Bench<B>) -> Verdict {
    let spellings: [&[u8]; 8] = [
        b"worker",
        b"Worker",
        b"worker ",
        b" worker",
        b"worker%",
        "w\u{f6}rker".as_bytes(),
        "wo\u{308}rker".as_bytes(),
        b"0A0B0C0D-0000-0000-0000-00000000000F",
    ];
    let lease = bench.exclusive("job").with_id(&LeaseId::foreign(spellings[0])?);
    bench.client.grant(&lease).await?;
    for spelling in &spellings[1..] {
        let other = lease.clone().with_id(&LeaseId::foreign(spelling)?);
        bench.client.refuse(&other).await?;
        bench.client.not_held(&other).await?;
        bench.client.lost(&other).await?;
    }
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_ids_of_any_bytes_are_kept<B: Backing>(bench: &Bench<B>) -> Verdict {
    let longest = [b'x'; LeaseId::MAX_BYTES];
    let all_bytes: Vec<u8> = (0..=254).collect();
    let ids: [&[u8]; 6] =
        [b"x", &longest, &all_bytes, &[0xff, 0x00, 0xfe], b"hex:ff", b"{\"$ne\":1}'; --"];
    for (n, bytes) in ids.iter().enumerate() {
        let id = LeaseId::foreign(bytes)?;
        let lease = bench.exclusive(&format!("job:{n}")).with_id(&id);
        bench.client.grant(&lease).await?;
        bench.client.confirm(&lease).await?;
        bench.client.held(&lease, lease.term).await?;
        let record = bench.client.only(lease.filter()).await?;
        ensure_eq!(record.id, Some(id), "the id as listed");
        bench.holds(lease.key().as_str(), &[&lease]).await?;
        bench.client.released(&lease).await?;
        bench.holds(lease.key().as_str(), &[]).await?;
    }
    PASSED
}
