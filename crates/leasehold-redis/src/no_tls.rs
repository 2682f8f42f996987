//! Replaces the module `tls` without the feature `tls`.

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use redis::{Client, ConnectionInfo};

/// Never exists.
#[derive(Clone)]
pub(crate) enum Certificates {}

impl Certificates {
    pub(crate) fn client(self, _: ConnectionInfo) -> redis::RedisResult<Client> {
        match self {}
    }
}

/// No URL with TLS was accepted.
pub(crate) fn provide() {}

/// Refuses a URL with TLS.
pub(crate) fn of_url(scheme: &str, _: &mut StoreUrl) -> Result<Option<Certificates>> {
    if scheme.starts_with("rediss") {
        return Err(Error::unsupported(format!(
            "the {scheme} URL needs TLS, which this program was built without; build it with the feature tls of \
             leasehold-redis, or write redis:// for an unencrypted connection"
        )));
    }
    Ok(None)
}
