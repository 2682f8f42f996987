//! The certificates that connections trust.

use std::fmt::Display;

use leasehold_core::{Error, Result};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The certificates of the machine's authorities, or those in this file, which `option` names.
///
/// # Errors
/// `InvalidInput` if the file cannot be read, or has no certificate in PEM or one that is no authority's.
pub fn trusted(option: &str, file: Option<&str>) -> Result<Vec<CertificateDer<'static>>> {
    let Some(file) = file else { return Ok(rustls_native_certs::load_native_certs().certs) };
    let unusable = |why: &dyn Display| {
        Error::invalid_input(format!(
            "the file {file} of the option {option} cannot be used ({why})"
        ))
    };
    let all: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|e| unusable(&e))?;
    if all.is_empty() {
        return Err(unusable(&"it has no certificate in PEM"));
    }
    let mut roots = RootCertStore::empty();
    for certificate in &all {
        roots.add(certificate.clone()).map_err(|e| unusable(&e))?;
    }
    Ok(all)
}
