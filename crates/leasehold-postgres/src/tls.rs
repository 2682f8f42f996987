//! TLS with rustls. Certificates are always verified.

use std::sync::Arc;

use leasehold_core::{Error, Result};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How connections are encrypted, if the server agrees on it.
pub(crate) type Tls = MakeRustlsConnect;

/// Trusts the machine's authorities, or the one whose certificate is in this file.
pub(crate) fn of_authority(file: Option<&str>) -> Result<Tls> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(leasehold_sql::trusted("sslrootcert", file)?);
    // The provider of cryptography that the program has chosen, if it has.
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::unexpected("TLS cannot be set up").with_source(e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
