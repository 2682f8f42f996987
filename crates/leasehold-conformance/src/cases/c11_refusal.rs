//! C11: what a store cannot do, and what no store could, is refused before it acts. Cases that need a
//! capability check the refusal where it is absent; here each capability that is claimed is also used.

use std::time::Duration;

use leasehold_core::{
    Acquire, Cursor, Ending, Evict, FencingToken, Filter, Key, List, MAX_ENTRIES, Mode, Release,
    Remaining, Renew, Store, Ttl,
};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::bench::Bench;
use crate::case::{Ended, PASSED, Verdict, cases, invalid_input, rejected, unsupported};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Failure};

cases! {
    c11_shared_is_done_or_refused [Shared],
    c11_a_limit_is_kept_or_refused [SharedLimit],
    c11_many_keys_are_taken_or_refused [ManyKeys],
    c11_never_is_done_or_refused [Never],
    c11_keep_is_done_or_refused [Keep],
    c11_a_raise_is_done_or_refused [Tokens],
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

async fn c11_shared_is_done_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers = [bench.shared("job"), bench.shared("job")];
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    bench.holds("job", &[&readers[0], &readers[1]]).await?;
    PASSED
}

async fn c11_a_limit_is_kept_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.one("job", at_most(1))).await?;
    bench.client.refuse(&bench.one("job", at_most(1))).await?;
    PASSED
}

async fn c11_many_keys_are_taken_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let both = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&both).await?;
    bench.holds("a", &[&both]).await?;
    bench.holds("b", &[&both]).await?;
    PASSED
}

async fn c11_never_is_done_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    ensure_eq!(bench.client.held(&lease, Ttl::NEVER).await?, Remaining::Never, "what remains");
    bench.pass(11).await;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c11_keep_is_done_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let kept = bench.client.keep(&lease, bench.ticks(3)).await?;
    bench.about(kept, bench.ticks(3), "for how long it is kept")?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    PASSED
}

async fn c11_a_raise_is_done_or_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let highest = FencingToken::new(FencingToken::MAX - 1)?;
    let raise = lease.renewal(lease.term).with_token_raised_to(highest);
    bench.client.renew_all(Renew::new(vec![raise])).await?;
    ensure_eq!(bench.client.confirm(&lease).await?.token, Some(highest), "the raised token");
    PASSED
}

/// A key of exactly so many bytes, of one-byte or of four-byte characters.
fn long_key(bytes: usize, emoji: bool) -> Key {
    let text = if emoji { "\u{1f512}".repeat(bytes / 4) } else { String::new() };
    key(&format!("{text}{}", "k".repeat(bytes - text.len())))
}

async fn c11_the_longest_key_is_taken<B: Backing>(bench: &Bench<B>) -> Verdict {
    for emoji in [false, true] {
        let longest = long_key(bench.can.max_key_bytes, emoji);
        let lease = bench.exclusive(longest.as_str());
        bench.client.grant(&lease).await?;
        bench.holds(longest.as_str(), &[&lease]).await?;
        // A key cut short would be the same key.
        let shorter = long_key(bench.can.max_key_bytes - 1, emoji);
        bench.client.grant(&bench.exclusive(shorter.as_str())).await?;
        let record = bench.client.only(Filter::default().with_key(longest.clone())).await?;
        ensure_eq!(record.key, longest, "the key as listed");
        bench.client.released(&lease).await?;
    }
    PASSED
}

async fn c11_a_longer_key_is_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    if bench.can.max_key_bytes == Key::MAX_BYTES {
        return Ok(Ended::NotApplicable(format!("{} takes the longest keys", bench.can.name)));
    }
    let before = bench.observe().await?;
    let (client, long) = (&bench.client, long_key(bench.can.max_key_bytes + 1, false));
    let lease = bench.exclusive(long.as_str());
    unsupported(&client.reject(&lease).await?)?;
    unsupported(&rejected(client.store().renew(&lease.renew(lease.term)).await)?)?;
    let release = Release::new(vec![lease.ending()]);
    unsupported(&rejected(client.store().release(&release).await)?)?;
    let list = List::new(Filter::default().with_key(long));
    unsupported(&rejected(client.store().list(&list).await)?)?;
    let evict = Evict::exactly(lease.targets(), None);
    unsupported(&rejected(client.store().evict(&evict).await)?)?;
    bench.unchanged(&before).await?;
    PASSED
}

async fn c11_the_most_keys_are_taken_and_more_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let Some(most) = bench.can.max_claims else {
        return Ok(Ended::NotApplicable(format!("{} takes any number of keys", bench.can.name)));
    };
    let names: Vec<_> = (0..=most).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    unsupported(&bench.client.reject(&bench.exclusive_all(&names)).await?)?;
    ensure!(bench.observe().await?.rows.is_empty(), "a refused request left rows");
    bench.client.grant(&bench.exclusive_all(&names[..most])).await?;
    PASSED
}

async fn c11_the_shortest_and_the_longest_term_are_taken<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, term) in [("short", bench.can.min_term), ("long", bench.can.max_term)] {
        let lease = Attempt::new(all_of(&[name], Mode::Exclusive), term);
        let granted = bench.client.grant(&lease).await?;
        let Remaining::For(remaining) = granted.remaining else {
            return Err(Failure::new("a term with an end was granted without one"));
        };
        bench.about(remaining, term, "the term granted")?;
    }
    bench.pass_for(bench.can.min_term + bench.can.margin).await;
    bench.holds("short", &[]).await?;
    PASSED
}

async fn c11_terms_beyond_the_limits_are_refused<B: Backing>(bench: &Bench<B>) -> Verdict {
    let nano = Duration::from_nanos(1);
    let beyond = [bench.can.min_term - nano, bench.can.max_term + nano];
    let before = bench.observe().await?;
    let mut tried = false;
    for term in beyond.into_iter().filter_map(|term| Ttl::new(term).ok()) {
        tried = true;
        let mut lease = bench.exclusive("job");
        let renew = lease.renew(term);
        lease.term = term;
        unsupported(&bench.client.reject(&lease).await?)?;
        unsupported(&rejected(bench.client.store().renew(&renew).await)?)?;
    }
    bench.unchanged(&before).await?;
    if tried {
        return PASSED;
    }
    Ok(Ended::NotApplicable(format!("{} takes every term there is", bench.can.name)))
}

/// Never exists only in a renewal, so that no acquire that was cut off leaves a lease without end.
async fn c11_an_acquire_without_end_is_invalid<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let request = Acquire::new(lease.id.clone(), lease.claims.clone(), Ttl::NEVER);
    invalid_input(&rejected(bench.client.store().acquire(&request).await)?)?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c11_requests_name_one_to_a_thousand_leases<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    for count in [0, MAX_ENTRIES + 1] {
        let renew = Renew::new(vec![lease.renewal(bench.ttl(50)); count]);
        invalid_input(&rejected(bench.client.store().renew(&renew).await)?)?;
        let release = Release::new(vec![lease.ending(); count]);
        invalid_input(&rejected(bench.client.store().release(&release).await)?)?;
    }
    bench.unchanged(&before).await?;
    let release = Release::new(vec![lease.ending(); MAX_ENTRIES]);
    bench.client.release_all(release).await?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c11_a_release_names_keys<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let release = Release::new(vec![Ending::new(lease.id.clone(), [])]);
    invalid_input(&rejected(bench.client.store().release(&release).await)?)?;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c11_pages_have_one_to_a_thousand_records<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let store = bench.client.store();
    for limit in [0, MAX_ENTRIES + 1] {
        let list = List::new(Filter::default()).with_limit(limit);
        invalid_input(&rejected(store.list(&list).await)?)?;
        let purge = Evict::expired(Filter::default()).with_limit(limit);
        invalid_input(&rejected(store.evict(&purge).await)?)?;
        let evict = Evict::exactly(lease.targets(), None).with_limit(limit);
        invalid_input(&rejected(store.evict(&evict).await)?)?;
    }
    invalid_input(&rejected(store.evict(&Evict::exactly(vec![], None)).await)?)?;
    bench.holds("job", &[&lease]).await?;
    bench.client.list_by(Filter::default(), MAX_ENTRIES).await?;
    PASSED
}

async fn c11_a_keep_beyond_ten_years_is_invalid<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let ending = lease.ending().with_keep(Ttl::MAX + Duration::from_secs(1));
    let release = Release::new(vec![ending]);
    invalid_input(&rejected(bench.client.store().release(&release).await)?)?;
    bench.client.held(&lease, lease.term).await?;
    PASSED
}

/// Whether a request may be served is known before any I/O, so nothing of it has acted.
async fn c11_one_bad_lease_refuses_the_whole_request<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let release = Release::new(vec![lease.ending(), Ending::new(lease.id.clone(), [])]);
    invalid_input(&rejected(bench.client.store().release(&release).await)?)?;
    bench.holds("job", &[&lease]).await?;
    if !bench.can.shared {
        let reader = bench.shared("job");
        let renew = Renew::new(vec![lease.renewal(bench.ttl(50)), reader.renewal(reader.term)]);
        unsupported(&rejected(bench.client.store().renew(&renew).await)?)?;
        let record = bench.client.only(lease.filter()).await?;
        bench.remains(record.remaining(), 10, "the term after a refused renewal")?;
    }
    PASSED
}

async fn c11_a_cursor_of_another_store_is_invalid<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.exclusive("job")).await?;
    for bytes in [&b""[..], b"\xff\xfe\xfd", b"'; DROP TABLE leases; --"] {
        let list = List::new(Filter::default()).with_cursor(Cursor::new(bytes.to_vec()));
        invalid_input(&rejected(bench.client.store().list(&list).await)?)?;
    }
    PASSED
}

async fn c11_every_client_has_the_same_capabilities<B: Backing>(bench: &Bench<B>) -> Verdict {
    let other = bench.another().await?;
    ensure_eq!(other.store().capabilities(), bench.can, "the capabilities of another client");
    ensure_eq!(bench.client.store().capabilities(), bench.can, "the capabilities asked again");
    ensure!(bench.can.min_term >= Ttl::MIN, "the shortest term is below what a term can be");
    ensure!(bench.can.min_term < bench.can.max_term, "no term is admitted");
    ensure!(bench.can.max_key_bytes <= Key::MAX_BYTES, "keys are never that long");
    ensure!(bench.can.shared || !bench.can.shared_limit, "a limit without shared locks");
    PASSED
}
