//! Certificates made for a test.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use testkit::process::temporary_directory;

/// An authority and the certificates that it signed, in files.
pub(crate) struct Files {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Files {
    pub(crate) fn new() -> Self {
        let directory = temporary_directory("tls").unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        fs::write(directory.join("ca.crt"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let files = Self { directory, issuer };
        files.sign("server");
        files.sign("client");
        files
    }

    /// Signs a certificate for `name`, and replaces the previous one.
    pub(crate) fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let uri = format!("spiffe://test/{name}").try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}.crt"), &certificate.pem());
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.directory.join(name);
        fs::write(path.with_extension("new"), text).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _may_be_gone = fs::remove_dir_all(&self.directory);
    }
}
