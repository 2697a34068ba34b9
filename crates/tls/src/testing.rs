//! Certificates and both ends of a connection, for the tests of this room.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

use crate::{Client, ClientAuth, ClientOptions, Server, ServerOptions};

/// An authority, a server and a client, in files that are removed with this value.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self(TempDir::new().unwrap());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        files.write("ca.crt", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let uri = format!("spiffe://test/{name}").try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
            params.not_after = rcgen::date_time_ymd(2030, 1, 1);
            let certificate = params.signed_by(&key, &issuer).unwrap();
            files.write(&format!("{name}.key"), &key.serialize_pem());
            files.write(&format!("{name}.crt"), &certificate.pem());
        }
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn server_options(&self) -> ServerOptions {
        ServerOptions {
            certificate_file: Some(self.path("server.crt")),
            key_file: Some(self.path("server.key")),
            authorities_file: Some(self.path("ca.crt")),
            client_auth: ClientAuth::Optional,
            caches_sessions: true,
            sessions_lifetime_s: 300,
            ..ServerOptions::default()
        }
    }

    pub(crate) fn server(&self) -> Server {
        Server::load(&self.server_options(), &clock()).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        let options = ClientOptions {
            authorities_file: Some(self.path("ca.crt")),
            certificate_file: Some(self.path("client.crt")),
            key_file: Some(self.path("client.key")),
            ..ClientOptions::default()
        };
        Client::load(&options).unwrap()
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Returns two nonblocking sockets that are connected to each other.
pub(crate) fn pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}
