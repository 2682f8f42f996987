//! C11: a store refuses what it, or any store, cannot do before it acts. Cases that need a capability check the
//! refusal where it is absent; here each claimed capability is also used.

use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Cursor, EvictRequest, FencingToken, Filter, Key, ListRequest, MAX_ENTRIES,
    Mode, ReleaseEntry, ReleaseRequest, Remaining, RenewRequest, Store, Ttl,
};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::case::{CaseResult, PASSED, cases, invalid_input, rejected, unsupported};
use crate::ended::Ended;
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Failure};

cases! {
    c11_shared_is_done_or_refused [Shared],
    c11_a_limit_is_kept_or_refused [SharedLimit],
    c11_many_keys_are_taken_or_refused [ManyKeys],
    c11_never_is_done_or_refused [Never],
    c11_keep_is_done_or_refused [Keep],
    c11_a_raise_is_done_or_refused [Raise],
    c11_the_longest_key_is_taken,
    c11_a_longer_key_is_refused,
    c11_the_most_keys_are_taken_and_more_refused [ManyKeys],
    c11_the_shortest_and_the_longest_term_are_taken,
    c11_terms_beyond_the_limits_are_refused,
    c11_an_acquire_without_end_is_invalid,
    c11_requests_name_one_to_a_thousand_leases,
    c11_a_release_names_keys,
    c11_pages_have_one_to_a_thousand_records,
    c11_a_keep_beyond_ten_years_is_invalid [Keep],
    c11_one_bad_lease_refuses_the_whole_request,
    c11_a_cursor_of_another_store_is_invalid,
    c11_every_client_has_the_same_capabilities,
}

async fn c11_shared_is_done_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let readers = [fixture.shared("job"), fixture.shared("job")];
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    fixture.holds("job", &[&readers[0], &readers[1]]).await?;
    PASSED
}

async fn c11_a_limit_is_kept_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.one("job", at_most(1))).await?;
    fixture.client.refuse(&fixture.one("job", at_most(1))).await?;
    PASSED
}

async fn c11_many_keys_are_taken_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let both = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&both).await?;
    fixture.holds("a", &[&both]).await?;
    fixture.holds("b", &[&both]).await?;
    PASSED
}

async fn c11_never_is_done_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    ensure_eq!(fixture.client.held(&lease, Ttl::NEVER).await?, Remaining::Never, "what remains");
    fixture.pass(11).await;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c11_keep_is_done_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let kept = fixture.client.keep(&lease, fixture.ticks(3)).await?;
    fixture.about(kept, fixture.ticks(3), "for how long it is kept")?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c11_a_raise_is_done_or_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let highest = FencingToken::new(1 << 52)?;
    let raise = lease.renewal(lease.term).with_token_raised_to(highest);
    fixture.client.renew_all(RenewRequest::new(vec![raise])).await?;
    ensure_eq!(fixture.client.confirm(&lease).await?.token, Some(highest), "the raised token");
    PASSED
}

/// A key of exactly `bytes` bytes, of one-byte or of four-byte characters.
fn long_key(bytes: usize, emoji: bool) -> Key {
    let text = if emoji { "\u{1f512}".repeat(bytes / 4) } else { String::new() };
    key(&format!("{text}{}", "k".repeat(bytes - text.len())))
}

async fn c11_the_longest_key_is_taken<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for emoji in [false, true] {
        let longest = long_key(fixture.can.max_key_bytes, emoji);
        let lease = fixture.exclusive(longest.as_str());
        fixture.client.grant(&lease).await?;
        fixture.holds(longest.as_str(), &[&lease]).await?;
        // A truncated key would be the same key.
        let shorter = long_key(fixture.can.max_key_bytes - 1, emoji);
        fixture.client.grant(&fixture.exclusive(shorter.as_str())).await?;
        let record = fixture.client.only(Filter::default().with_key(longest.clone())).await?;
        ensure_eq!(record.key, longest, "the key as listed");
        fixture.client.released(&lease).await?;
    }
    PASSED
}

async fn c11_a_longer_key_is_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    if fixture.can.max_key_bytes == Key::MAX_BYTES {
        return Ok(Ended::NotApplicable(format!("{} accepts the longest keys", fixture.can.name)));
    }
    let before = fixture.observe().await?;
    let (client, long) = (&fixture.client, long_key(fixture.can.max_key_bytes + 1, false));
    let lease = fixture.exclusive(long.as_str());
    unsupported(&client.reject(&lease).await?)?;
    unsupported(&rejected(client.store().renew(&lease.renew(lease.term)).await)?)?;
    let release = ReleaseRequest::new(vec![lease.ending()]);
    unsupported(&rejected(client.store().release(&release).await)?)?;
    let list = ListRequest::new(Filter::default().with_key(long));
    unsupported(&rejected(client.store().list(&list).await)?)?;
    let evict = EvictRequest::exactly(lease.targets(), None);
    unsupported(&rejected(client.store().evict(&evict).await)?)?;
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c11_the_most_keys_are_taken_and_more_refused<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let Some(most) = fixture.can.max_claims else {
        return Ok(Ended::NotApplicable(format!(
            "{} accepts any number of keys",
            fixture.can.name
        )));
    };
    let names: Vec<_> = (0..=most).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    unsupported(&fixture.client.reject(&fixture.exclusive_all(&names)).await?)?;
    ensure!(fixture.observe().await?.rows.is_empty(), "a refused request left rows");
    fixture.client.grant(&fixture.exclusive_all(&names[..most])).await?;
    PASSED
}

async fn c11_the_shortest_and_the_longest_term_are_taken<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for (name, term) in [("short", fixture.can.min_term), ("long", fixture.can.max_term)] {
        let lease = Attempt::new(all_of(&[name], Mode::Exclusive), term);
        let granted = fixture.client.grant(&lease).await?;
        let Remaining::For(remaining) = granted.remaining else {
            return Err(Failure::new("a term with an end was granted without one"));
        };
        fixture.about(remaining, term, "the term granted")?;
    }
    fixture.pass_for(fixture.can.min_term + fixture.can.margin).await;
    fixture.holds("short", &[]).await?;
    PASSED
}

async fn c11_terms_beyond_the_limits_are_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let nano = Duration::from_nanos(1);
    let beyond = [fixture.can.min_term - nano, fixture.can.max_term + nano];
    let before = fixture.observe().await?;
    let mut tried = false;
    for term in beyond.into_iter().filter_map(|term| Ttl::new(term).ok()) {
        tried = true;
        let mut lease = fixture.exclusive("job");
        let renew = lease.renew(term);
        lease.term = term;
        unsupported(&fixture.client.reject(&lease).await?)?;
        unsupported(&rejected(fixture.client.store().renew(&renew).await)?)?;
    }
    fixture.unchanged(&before).await?;
    if tried {
        return PASSED;
    }
    Ok(Ended::NotApplicable(format!("{} accepts every term", fixture.can.name)))
}

/// Only a renewal can ask for `Never`, so that an interrupted acquire leaves no lease without end.
async fn c11_an_acquire_without_end_is_invalid<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let request = AcquireRequest::new(lease.id.clone(), lease.claims.clone(), Ttl::NEVER);
    invalid_input(&rejected(fixture.client.store().acquire(&request).await)?)?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c11_requests_name_one_to_a_thousand_leases<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    for count in [0, MAX_ENTRIES + 1] {
        let renew = RenewRequest::new(vec![lease.renewal(fixture.ttl(50)); count]);
        invalid_input(&rejected(fixture.client.store().renew(&renew).await)?)?;
        let release = ReleaseRequest::new(vec![lease.ending(); count]);
        invalid_input(&rejected(fixture.client.store().release(&release).await)?)?;
    }
    fixture.unchanged(&before).await?;
    let release = ReleaseRequest::new(vec![lease.ending(); MAX_ENTRIES]);
    fixture.client.release_all(release).await?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c11_a_release_names_keys<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let release = ReleaseRequest::new(vec![ReleaseEntry::new(lease.id.clone(), [])]);
    invalid_input(&rejected(fixture.client.store().release(&release).await)?)?;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c11_pages_have_one_to_a_thousand_records<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let store = fixture.client.store();
    for limit in [0, MAX_ENTRIES + 1] {
        let list = ListRequest::new(Filter::default()).with_limit(limit);
        invalid_input(&rejected(store.list(&list).await)?)?;
        let purge = EvictRequest::expired(Filter::default()).with_limit(limit);
        invalid_input(&rejected(store.evict(&purge).await)?)?;
        let evict = EvictRequest::exactly(lease.targets(), None).with_limit(limit);
        invalid_input(&rejected(store.evict(&evict).await)?)?;
    }
    invalid_input(&rejected(store.evict(&EvictRequest::exactly(vec![], None)).await)?)?;
    fixture.holds("job", &[&lease]).await?;
    fixture.client.list_by(Filter::default(), MAX_ENTRIES).await?;
    PASSED
}

async fn c11_a_keep_beyond_ten_years_is_invalid<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let ending = lease.ending().with_keep(Ttl::MAX + Duration::from_secs(1));
    let release = ReleaseRequest::new(vec![ending]);
    invalid_input(&rejected(fixture.client.store().release(&release).await)?)?;
    fixture.client.held(&lease, lease.term).await?;
    PASSED
}

/// Every request is checked before any I/O, so no part of it has acted.
async fn c11_one_bad_lease_refuses_the_whole_request<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let release =
        ReleaseRequest::new(vec![lease.ending(), ReleaseEntry::new(lease.id.clone(), [])]);
    invalid_input(&rejected(fixture.client.store().release(&release).await)?)?;
    fixture.holds("job", &[&lease]).await?;
    if !fixture.can.shared {
        let reader = fixture.shared("job");
        let renew =
            RenewRequest::new(vec![lease.renewal(fixture.ttl(50)), reader.renewal(reader.term)]);
        unsupported(&rejected(fixture.client.store().renew(&renew).await)?)?;
        let record = fixture.client.only(lease.filter()).await?;
        fixture.remains(record.remaining(), 10, "the term after a refused renewal")?;
    }
    PASSED
}

async fn c11_a_cursor_of_another_store_is_invalid<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.exclusive("job")).await?;
    for bytes in [&b""[..], b"\xff\xfe\xfd", b"'; DROP TABLE leases; --"] {
        let list = ListRequest::new(Filter::default()).with_cursor(Cursor::new(bytes.to_vec()));
        invalid_input(&rejected(fixture.client.store().list(&list).await)?)?;
    }
    PASSED
}

async fn c11_every_client_has_the_same_capabilities<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let other = fixture.another().await?;
    ensure_eq!(other.store().capabilities(), fixture.can, "the capabilities of another client");
    ensure_eq!(fixture.client.store().capabilities(), fixture.can, "the capabilities asked again");
    ensure!(fixture.can.min_term >= Ttl::MIN, "the shortest term is below what a term can be");
    ensure!(fixture.can.min_term < fixture.can.max_term, "no term is admitted");
    ensure!(fixture.can.max_key_bytes <= Key::MAX_BYTES, "keys are never that long");
    ensure!(fixture.can.shared || !fixture.can.shared_limit, "a limit without shared locks");
    PASSED
}
