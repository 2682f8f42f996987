//! Certificates for tests.

use std::path::PathBuf;

use rcgen::{CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

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

    /// Writes `NAME.pem` and `NAME.key`, for the host `localhost`.
    pub fn sign(&self, name: &str) {
        self.sign_with(name, |_| ());
    }

    /// As [`sign`](Self::sign), for a certificate that has expired.
    pub fn sign_expired(&self, name: &str) {
        self.sign_with(name, |params| params.not_after = date_time_ymd(2020, 1, 1));
    }

    /// One file with a certificate that was signed and its key.
    pub fn both(&self, name: &str) -> PathBuf {
        let [certificate, key] =
            ["pem", "key"].map(|part| std::fs::read(self.file(&format!("{name}.{part}"))).unwrap());
        let both = self.file(&format!("{name}.both"));
        std::fs::write(&both, [certificate, key].concat()).unwrap();
        both
    }

    fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}
