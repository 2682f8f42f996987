//! TLS with rustls. Certificates are always verified.

use leasehold_core::Result;
use mysql_async::SslOpts;
use rustls::crypto::{CryptoProvider, ring};

/// Trusts the machine's authorities, or the one whose certificate is in this file.
pub(crate) fn of_authority(file: Option<&str>) -> Result<SslOpts> {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which is as good.
        drop(ring::default_provider().install_default());
    }
    let roots = leasehold_sql::trusted("ssl-ca", file)?;
    let roots = roots.into_iter().map(|root| root.to_vec().into()).collect();
    Ok(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true))
}
