//! TLS with rustls.

use std::path::Path;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

/// A private authority's certificate, or a client certificate.
#[derive(Clone)]
pub(crate) struct Certificates(TlsCertificates);

impl Certificates {
    pub(crate) fn client(self, info: ConnectionInfo) -> redis::RedisResult<Client> {
        Client::build_with_tls(info, self.0)
    }
}

/// Installs a provider of cryptography if the program has chosen none.
pub(crate) fn provide() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// The certificates of a URL with TLS.
pub(crate) fn of_url(scheme: &str, options: &mut StoreUrl) -> Result<Option<Certificates>> {
    let mut file = |name: &str| -> Result<Option<Vec<u8>>> {
        let Some(path) = options.take(name) else { return Ok(None) };
        let read = std::fs::read(Path::new(&path)).map_err(|e| {
            Error::invalid_input(format!(
                "the file {path} of the option {name} cannot be read ({e})"
            ))
            .with_source(e)
        })?;
        Ok(Some(read))
    };
    let (ca, cert, key) = (file("ca")?, file("cert")?, file("key")?);
    if !scheme.starts_with("rediss") {
        return if ca.is_some() || cert.is_some() || key.is_some() {
            Err(Error::invalid_input(format!(
                "the {scheme} URL has certificates, but does not use TLS; write rediss://"
            )))
        } else {
            Ok(None)
        };
    }
    let client_tls = match (cert, key) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => {
            return Err(Error::invalid_input(
                "the rediss URL has only one of cert and key; a client certificate needs both",
            ));
        }
    };
    Ok((ca.is_some() || client_tls.is_some())
        .then_some(Certificates(TlsCertificates { client_tls, root_cert: ca })))
}
