//! TLS with rustls. Certificates are always verified.

use leasehold_core::{Error, Result};
use mysql_async::SslOpts;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Trusts the machine's authorities, or the one whose certificate is in this file.
pub(crate) fn of_authority(file: Option<&str>) -> Result<SslOpts> {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which is as good.
        drop(ring::default_provider().install_default());
    }
    let roots: Vec<CertificateDer<'static>> = match file {
        Some(file) => {
            let unreadable = |why: &dyn std::fmt::Display| {
                Error::invalid_input(format!(
                    "the file {file} of the option ssl-ca cannot be used ({why})"
                ))
            };
            let all = CertificateDer::pem_file_iter(file).map_err(|e| unreadable(&e))?;
            let all = all.collect::<Result<Vec<_>, _>>().map_err(|e| unreadable(&e))?;
            if all.is_empty() {
                return Err(unreadable(&"it has no certificate in PEM"));
            }
            all
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let roots = roots.into_iter().map(|root| root.to_vec().into()).collect();
    Ok(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true))
}
