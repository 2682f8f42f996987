//! C3: a lease id names one attempt; while its lease lives, the same request confirms it.

use futures_util::future::try_join_all;
use leasehold_core::{
    AcquireReply, LeaseId, Mode, Note, ReleaseOutcome, ReleaseRequest, Remaining, RenewOutcome,
    RenewRequest, Store, Ttl,
};

use crate::attempt::{all_of, at_most};
use crate::case::{CaseResult, PASSED, cases, invalid_input};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Failure};

cases! {
    c03_same_id_returns_the_same_token,
    c03_same_id_of_many_keys_returns_the_same_token [ManyKeys],
    c03_another_client_may_send_the_request_again,
    c03_a_request_sent_twice_at_once_is_one_lease,
    c03_a_renewal_may_be_sent_again,
    c03_same_id_extends_to_the_larger_term,
    c03_same_id_never_shortens,
    c03_same_id_leaves_never_alone [Never],
    c03_same_id_in_another_mode_is_invalid [Shared],
    c03_same_id_in_another_mode_on_one_key_is_invalid [Shared, ManyKeys],
    c03_a_limit_does_not_identify_a_lease [SharedLimit],
    c03_group_and_note_stay_as_first_written [ReportsGroup, ReportsNote],
    c03_second_id_of_the_same_group_is_refused,
    c03_again_changes_no_decision,
    c03_ended_id_is_granted_afresh,
    c03_expired_id_is_granted_afresh,
    c03_same_id_on_another_key_is_another_lease [Shared],
    c03_what_names_an_earlier_token_changes_nothing [ComparesTokens],
    c03_ids_are_compared_verbatim,
    c03_ids_of_any_bytes_are_kept [AnyId],
}

async fn c03_same_id_returns_the_same_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let first = fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    for _ in 0..3 {
        let again = fixture.client.confirm(&lease).await?;
        ensure_eq!(again.token, first.token, "the token of the same request sent again");
        fixture.remains(again.remaining, 10, "its term")?;
    }
    fixture.unchanged(&before).await?;
    fixture.client.released(&lease).await?;
    fixture.client.not_held(&lease).await?;
    PASSED
}

async fn c03_same_id_of_many_keys_returns_the_same_token<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive_all(&["a", "b"]);
    let first = fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let again = fixture.client.confirm(&lease).await?;
    ensure_eq!(again.token, first.token, "the token of the same request sent again");
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c03_another_client_may_send_the_request_again<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    let first = fixture.client.grant(&lease).await?;
    let other = fixture.another().await?;
    ensure_eq!(
        other.confirm(&lease).await?.token,
        first.token,
        "the token in the reply to the other"
    );
    other.held(&lease, lease.term).await?;
    other.released(&lease).await?;
    fixture.holds("job", &[]).await?;
    fixture.client.not_held(&lease).await?;
    PASSED
}

/// On keys that nobody has used before. On a quorum each may raise the token of the lease.
async fn c03_a_request_sent_twice_at_once_is_one_lease<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let clients = [fixture.another().await?, fixture.another().await?];
    for round in 0..30 {
        let lease = fixture.exclusive(&format!("job-{round}"));
        let answers = try_join_all(clients.iter().map(|client| client.acquire(&lease))).await?;
        let grants: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                AcquireReply::Granted(granted) => Some(granted.token),
                _ => None,
            })
            .collect();
        ensure_eq!(grants.len(), 2, "how often the same request was granted: {answers:?}");
        ensure!(grants[0] == grants[1] || !fixture.reports.winner, "two tokens: {answers:?}");
    }
    PASSED
}

async fn c03_a_renewal_may_be_sent_again<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let token = fixture.client.grant(&lease).await?.token;
    fixture.pass(4).await;
    let before = fixture.observe().await?;
    let other = fixture.another().await?;
    for client in [&fixture.client, &fixture.client, &other] {
        fixture.remains(client.held(&lease, lease.term).await?, 10, "the renewed term")?;
    }
    fixture.unchanged(&before).await?;
    ensure_eq!(fixture.client.confirm(&lease).await?.token, token, "the token");
    PASSED
}

async fn c03_same_id_extends_to_the_larger_term<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(4).await;
    let again = fixture.client.confirm(&lease).await?;
    fixture.remains(again.remaining, 10, "the term counted anew")?;
    let longer = lease.clone().with_term(fixture.ticks(20));
    fixture.remains(fixture.client.confirm(&longer).await?.remaining, 20, "the longer term")?;
    fixture.pass(15).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass(5).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c03_same_id_never_shortens<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(2).await;
    let shorter = lease.clone().with_term(fixture.ticks(3));
    let again = fixture.client.confirm(&shorter).await?;
    fixture.remains(again.remaining, 8, "what remains, never what was asked")?;
    fixture.pass(4).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c03_same_id_leaves_never_alone<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.held(&lease, Ttl::NEVER).await?;
    let again = fixture.client.confirm(&lease).await?;
    ensure_eq!(again.remaining, Remaining::Never, "what remains");
    fixture.pass(11).await;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_same_id_in_another_mode_is_invalid<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, held, asked) in
        [("a", Mode::Exclusive, Mode::SHARED), ("b", Mode::SHARED, Mode::Exclusive)]
    {
        let lease = fixture.one(name, held);
        fixture.client.grant(&lease).await?;
        let before = fixture.observe().await?;
        let other = lease.clone().with_claims(all_of(&[name], asked));
        invalid_input(&fixture.client.reject(&other).await?)?;
        fixture.unchanged(&before).await?;
        fixture.client.confirm(&lease).await?;
    }
    PASSED
}

async fn c03_same_id_in_another_mode_on_one_key_is_invalid<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.one("b", Mode::SHARED);
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let wider = lease.clone().with_claims(all_of(&["a", "b"], Mode::Exclusive));
    invalid_input(&fixture.client.reject(&wider).await?)?;
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c03_a_limit_does_not_identify_a_lease<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.one("job", at_most(2));
    let first = fixture.client.grant(&lease).await?;
    fixture.client.grant(&fixture.one("job", at_most(2))).await?;
    for mode in [at_most(1), at_most(7), Mode::SHARED] {
        let other = lease.clone().with_claims(all_of(&["job"], mode));
        let again = fixture.client.confirm(&other).await?;
        ensure_eq!(again.token, first.token, "the token when asked with {mode}");
        fixture.client.held(&other, other.term).await?;
    }
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 1, "the rows of the lease");
    PASSED
}

async fn c03_group_and_note_stay_as_first_written<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let note = Note::default().with_comment("first")?;
    let lease = fixture.exclusive("job").with_group("first").with_note(note.clone());
    fixture.client.grant(&lease).await?;
    let changed = lease.clone().with_group("second");
    fixture.client.confirm(&changed.with_note(Note::default().with_comment("second")?)).await?;
    let seen = fixture.observe().await?;
    for row in seen.held(&lease.id) {
        ensure_eq!(row.group, lease.group, "the group");
        ensure_eq!(row.note, note, "the note");
    }
    let record = fixture.client.only(lease.filter()).await?;
    ensure_eq!((record.group, record.note), (lease.group.clone(), note), "what is listed");
    PASSED
}

/// No hidden re-entrancy: a group is a label and not an identity.
async fn c03_second_id_of_the_same_group_is_refused<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job").with_group("worker");
    fixture.client.grant(&lease).await?;
    fixture.client.refuse(&fixture.exclusive("job").with_group("worker")).await?;
    fixture.holds("job", &[&lease]).await?;
    if fixture.can.shared {
        let reader = fixture.shared("doc").with_group("worker");
        fixture.client.grant(&reader).await?;
        fixture.client.refuse(&fixture.exclusive("doc").with_group("worker")).await?;
        fixture.holds("doc", &[&reader]).await?;
    }
    PASSED
}

/// `again` tells a quorum what not to roll back; a single store decides the same without it.
async fn c03_again_changes_no_decision<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let request = lease.request().again(None);
    let first = match Store::acquire(fixture.client.store(), &request).await? {
        AcquireReply::Granted(granted) => granted,
        other => return Err(Failure::new(format!("a free key was not granted: {other:?}"))),
    };
    ensure!(first.fresh, "a grant of a lease that did not live was not fresh");
    let request = lease.request().again(first.token);
    match Store::acquire(fixture.client.store(), &request).await? {
        AcquireReply::Granted(granted) => {
            ensure!(!granted.fresh, "a live lease was granted afresh");
            ensure_eq!(granted.token, first.token, "its token");
        }
        other => return Err(Failure::new(format!("a live lease was refused: {other:?}"))),
    }
    let other = fixture.exclusive("job").request().again(first.token);
    let answer = Store::acquire(fixture.client.store(), &other).await?;
    let refused = matches!(answer, AcquireReply::Refused(_));
    ensure!(refused, "another id entered with the holder's token: {answer:?}");
    PASSED
}

async fn c03_ended_id_is_granted_afresh<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job").with_id(&LeaseId::foreign(b"worker-7")?);
    let first = fixture.client.grant(&lease).await?;
    fixture.client.released(&lease).await?;
    let second = fixture.client.grant(&lease).await?;
    ensure!(
        !fixture.can.tokens || second.token > first.token,
        "the token of the second lease is {:?} after {:?}",
        second.token,
        first.token
    );
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_expired_id_is_granted_afresh<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let first = fixture.client.grant(&lease).await?;
    fixture.pass(10).await;
    let second = fixture.client.grant(&lease).await?;
    fixture.remains(second.remaining, 10, "the new term")?;
    ensure!(
        !fixture.can.tokens || second.token > first.token,
        "the token of the second lease is {:?} after {:?}",
        second.token,
        first.token
    );
    PASSED
}

/// A store judges by the named keys.
async fn c03_same_id_on_another_key_is_another_lease<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let id = LeaseId::foreign(b"worker-7")?;
    let writer = fixture.exclusive("a").with_id(&id);
    let reader = fixture.shared("b").with_id(&id);
    fixture.client.grant(&writer).await?;
    fixture.client.grant(&reader).await?;
    fixture.client.released(&writer).await?;
    fixture.holds("a", &[]).await?;
    fixture.holds("b", &[&reader]).await?;
    fixture.client.held(&reader, reader.term).await?;
    PASSED
}

/// A late renewal or release of an earlier lease does not reach a later one of the same id.
async fn c03_what_names_an_earlier_token_changes_nothing<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    let earlier = fixture.client.grant(&lease).await?.token;
    fixture.client.released(&lease).await?;
    let token = fixture.client.grant(&lease).await?.token;
    let (Some(earlier), Some(token)) = (earlier, token) else {
        return Err(Failure::new("a grant without a token"));
    };
    let before = fixture.observe().await?;
    let renewal = |token| RenewRequest::new(vec![lease.renewal(lease.term).with_token(token)]);
    let ending = |token| ReleaseRequest::new(vec![lease.ending().with_token(token)]);
    let renewed = fixture.client.renew_all(renewal(earlier)).await?;
    ensure!(matches!(renewed[..], [RenewOutcome::Lost(_)]), "{renewed:?}");
    let released = fixture.client.release_all(ending(earlier)).await?;
    ensure!(matches!(released[..], [ReleaseOutcome::NotHeld]), "{released:?}");
    fixture.unchanged(&before).await?;
    let renewed = fixture.client.renew_all(renewal(token)).await?;
    ensure!(matches!(renewed[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    let released = fixture.client.release_all(ending(token)).await?;
    ensure!(matches!(released[..], [ReleaseOutcome::Released]), "{released:?}");
    PASSED
}

async fn c03_ids_are_compared_verbatim<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
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
    let lease = fixture.exclusive("job").with_id(&LeaseId::foreign(spellings[0])?);
    fixture.client.grant(&lease).await?;
    for spelling in &spellings[1..] {
        let other = lease.clone().with_id(&LeaseId::foreign(spelling)?);
        fixture.client.refuse(&other).await?;
        fixture.client.not_held(&other).await?;
        fixture.client.lost(&other).await?;
    }
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c03_ids_of_any_bytes_are_kept<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let longest = [b'x'; LeaseId::MAX_BYTES];
    let all_bytes: Vec<u8> = (0..=254).collect();
    let ids: [&[u8]; 6] =
        [b"x", &longest, &all_bytes, &[0xff, 0x00, 0xfe], b"hex:ff", b"{\"$ne\":1}'; --"];
    for (n, bytes) in ids.iter().enumerate() {
        let id = LeaseId::foreign(bytes)?;
        let lease = fixture.exclusive(&format!("job:{n}")).with_id(&id);
        fixture.client.grant(&lease).await?;
        fixture.client.confirm(&lease).await?;
        fixture.client.held(&lease, lease.term).await?;
        let record = fixture.client.only(lease.filter()).await?;
        ensure_eq!(record.id, Some(id), "the id as listed");
        fixture.holds(lease.key().as_str(), &[&lease]).await?;
        fixture.client.released(&lease).await?;
        fixture.holds(lease.key().as_str(), &[]).await?;
    }
    PASSED
}
