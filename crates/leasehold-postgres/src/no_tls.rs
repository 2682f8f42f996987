//! Replaces the module `tls` without the feature `tls`.

use leasehold_core::{Error, Result};
use tokio_postgres::NoTls;

/// No connection is encrypted.
pub(crate) type Tls = NoTls;

/// Refuses an authority.
pub(crate) fn of_authority(file: Option<&str>) -> Result<Tls> {
    match file {
        None => Ok(NoTls),
        Some(_) => Err(Error::unsupported(
            "the option sslrootcert needs TLS, which this program was built without; build it with the feature tls of \
             leasehold-postgres",
        )),
    }
}
