use leasehold_core::{AnyStore, BoxFuture, Error, Result};
use leasehold_driver::StoreUrl;

use crate::locker::{Locker, LockerBuilder};

/// Opens the store that `url` names.
pub(crate) async fn open(url: &str) -> Result<LockerBuilder> {
    #[cfg(feature = "quorum")]
    if StoreUrl::parse(url)?.scheme() == "quorum" {
        let quorum = leasehold_quorum::QuorumUrl::parse(url)?;
        let drift = quorum.drift();
        let builder = Locker::builder(quorum.open(read).await?);
        return Ok(match drift {
            Some(drift) => builder.drift(drift),
            None => builder,
        });
    }
    let open = read(url)?;
    Ok(Locker::builder(open().await?))
}

/// Opens a store, as often as it is called.
type Open = Box<dyn Fn() -> BoxFuture<'static, Result<AnyStore>> + Send + Sync>;

/// Takes apart the URL of a store that is not made of others.
fn read(url: &str) -> Result<Open> {
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme() {
        #[cfg(feature = "local")]
        "local" => local(parsed),
        #[cfg(feature = "sqlite")]
        "sqlite" => sqlite(url),
        scheme => Err(unknown(scheme)),
    }
}

#[cfg(feature = "local")]
fn local(url: StoreUrl) -> Result<Open> {
    if !url.rest().is_empty() {
        return Err(Error::invalid_input(
            "the URL of the local store is \"local:\" with nothing after it",
        ));
    }
    url.finish(&[])?;
    Ok(Box::new(|| Box::pin(async { Ok(AnyStore::new(leasehold_local::LocalStore::shared())) })))
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Open> {
    let config = leasehold_sqlite::SqliteConfig::from_url(url)
        .map_err(|error| error.with_context("sqlite", "open"))?;
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move { config.open().await.map(AnyStore::new) })
    }))
}

fn unknown(scheme: &str) -> Error {
    let known: &[&str] = &[
        #[cfg(feature = "local")]
        "local:",
        #[cfg(feature = "sqlite")]
        "sqlite:PATH",
        #[cfg(feature = "quorum")]
        "quorum:?node=URL&node=URL&node=URL",
    ];
    Error::invalid_input(format!(
        "the store scheme {scheme:?} is not known here; this build knows: {}",
        known.join(", ")
    ))
}
