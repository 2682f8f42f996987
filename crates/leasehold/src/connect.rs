use leasehold_core::{AnyStore, Error, Result};
use leasehold_driver::StoreUrl;

/// Opens the store that `url` names.
pub(crate) async fn open(url: &str) -> Result<AnyStore> {
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme() {
        #[cfg(feature = "local")]
        "local" => local(parsed),
        #[cfg(feature = "sqlite")]
        "sqlite" => leasehold_sqlite::SqliteStore::from_url(url).await.map(AnyStore::new),
        scheme => Err(unknown(scheme)),
    }
}

#[cfg(feature = "local")]
fn local(url: StoreUrl) -> Result<AnyStore> {
    if !url.rest().is_empty() {
        return Err(Error::invalid_input(
            "the URL of the local store is \"local:\" with nothing after it",
        ));
    }
    url.finish(&[])?;
    Ok(AnyStore::new(leasehold_local::LocalStore::shared()))
}

fn unknown(scheme: &str) -> Error {
    let known: &[&str] = &[
        #[cfg(feature = "local")]
        "local:",
        #[cfg(feature = "sqlite")]
        "sqlite:PATH",
    ];
    Error::invalid_input(format!(
        "the store scheme {scheme:?} is not known here; this build knows: {}",
        known.join(", ")
    ))
}
