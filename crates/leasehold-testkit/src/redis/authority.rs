//! Servers with certificates.

use leasehold_conformance::free_port;

use super::Server;
pub use crate::authority::Authority;

impl Authority {
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
