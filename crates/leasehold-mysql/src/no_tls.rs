//! Without TLS.

use leasehold_core::{Error, Result};
use mysql_async::SslOpts;

pub(crate) fn of_authority(_: Option<&str>) -> Result<SslOpts> {
    Err(Error::unsupported(
        "this program was built without TLS; build it with the feature tls of leasehold-mysql, or add ssl-mode=disabled for \
         an unencrypted connection",
    ))
}
