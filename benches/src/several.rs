//! One lease of many keys: how long each request takes, which is about as long as it keeps others from the server or the file.

use std::time::Duration;

use leasehold::store::{
    AcquireReply, AcquireRequest, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Store,
};
use leasehold::{Claim, Claims, Error, Key, LeaseId, Mode, Result, Ttl};

use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::TTL;

/// Leases of a row, one after the other.
const COUNT: usize = or_few(20, 1);

/// Up to as many keys as the store accepts.
pub(crate) async fn run(store: &impl Store) -> Result<()> {
    println!("## One lease of many keys (`keys`)\n");
    println!("Medians of {COUNT} leases, one after the other, each of fresh keys.\n");
    println!("| keys | acquire, µs | renew, µs | release, µs |");
    println!("|---|---|---|---|");
    let most = store.capabilities().max_claims.unwrap_or(usize::MAX);
    for keys in [1, 10, 100, 1_000, 10_000].into_iter().filter(|keys| *keys <= most) {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..COUNT {
            for (of_kind, took) in times.iter_mut().zip(one(store, keys).await?) {
                of_kind.push(took);
            }
        }
        let [acquire, renew, release] =
            times.map(|mut of_kind| micros(percentile(&mut of_kind, 50)));
        println!("| {keys} | {acquire} | {renew} | {release} |");
    }
    println!();
    Ok(())
}

/// How long it takes to acquire, renew and release a lease of so many keys.
async fn one(store: &impl Store, keys: usize) -> Result<[Duration; 3]> {
    let id = LeaseId::mint()?;
    let keys: Vec<Key> =
        (0..keys).map(|n| Ok(Key::new(&format!("{id}-{n}"))?)).collect::<Result<_>>()?;
    let claims = keys.iter().map(|key| Claim { key: key.clone(), mode: Mode::Exclusive });
    let (claims, term) = (Claims::new(claims)?, Ttl::new(TTL)?);
    let acquire = AcquireRequest::new(id.clone(), claims.clone(), term);
    let renew = RenewRequest::new(vec![RenewEntry::extend(id.clone(), claims, term)]);
    let release = ReleaseRequest::new(vec![ReleaseEntry::new(id, keys)]);
    let began = now();
    let AcquireReply::Granted(_) = store.acquire(&acquire).await? else {
        return Err(Error::unexpected("free keys were refused"));
    };
    let acquired = now();
    store.renew(&renew).await?;
    let renewed = now();
    store.release(&release).await?;
    Ok([acquired - began, renewed - acquired, now() - renewed])
}
