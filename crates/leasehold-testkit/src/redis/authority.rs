//! Certificates for tests.

use std::path::PathBuf;

use rcgen::{CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use leasehold_conformance::free_port;

use super::Server;

/// A private authority and the certificates that it signed.
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn private() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { directory, issuer: Issuer::new(params, key) }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn sign(&self, name: &str) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A server with the certificate that was signed for `server`, and its port for TLS.
    pub async fn server(&self) -> (Server, u16) {
        let port = free_port().unwrap();
        let file = |name: &str| self.file(name).to_str().unwrap().to_owned();
        let settings = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-ca-cert-file", file("ca.pem")),
        ];
        let settings: Vec<_> =
            settings.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
        (Server::start(&settings).await.unwrap(), port)
    }
}
