//! What a server presents to its clients and requires of them, read from its files.

use std::path::PathBuf;
use std::sync::Arc;

use base::clock::Clock;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, ServerConfig};

use crate::certificate::{self, Certificate};
use crate::error::SetupError;
use crate::sessions::Sessions;
use crate::{ciphers, files, key};

/// The certificate that clients have to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// None.
    No,
    /// A valid one, or none.
    Optional,
    /// A valid one.
    #[default]
    Required,
}

/// The files and rules that the directives name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    /// The server's certificate, followed by the certificates of its signers.
    pub certificate_file: Option<PathBuf>,
    /// The key of the certificate.
    pub key_file: Option<PathBuf>,
    /// The password that protects the key.
    pub key_password: Option<Vec<u8>>,
    /// The authorities that sign certificates of clients.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more authorities.
    pub authorities_directory: Option<PathBuf>,
    /// The certificate that clients have to show.
    pub client_auth: ClientAuth,
    /// Versions, separated by spaces.
    pub protocols: String,
    /// Ciphers of TLS 1.2.
    pub ciphers: String,
    /// Ciphers of TLS 1.3.
    pub cipher_suites: String,
    /// Whether the server's order of ciphers decides.
    pub prefers_own_order: bool,
    /// Whether clients may resume sessions.
    pub caches_sessions: bool,
    /// Maximum number of sessions; 0 means 20,480.
    pub sessions_max: usize,
    /// Lifetime of a session in seconds.
    pub sessions_lifetime_s: u64,
}

impl ServerOptions {
    /// Returns the files that this configuration is read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let all = [
            &self.certificate_file,
            &self.key_file,
            &self.authorities_file,
            &self.authorities_directory,
        ];
        all.into_iter().flatten()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Server {
    pub(crate) config: Arc<ServerConfig>,
    /// The server's certificate.
    pub certificate: Option<Certificate>,
    /// The first authority.
    pub authority: Option<Certificate>,
}

impl Server {
    /// Makes the handshake of a tokio connection, with the files' content at the time of reading.
    #[cfg(feature = "tokio")]
    pub fn accept(
        &self,
        stream: tokio::net::TcpStream,
    ) -> tokio_rustls::Accept<tokio::net::TcpStream> {
        tokio_rustls::TlsAcceptor::from(Arc::clone(&self.config)).accept(stream)
    }

    /// Reads every file that `options` name.
    ///
    /// # Errors
    /// The first file or option that cannot be used.
    pub fn load(options: &ServerOptions, clock: &Arc<dyn Clock>) -> Result<Self, SetupError> {
        let missing = |what: &str| SetupError::Options(what.to_owned());
        let certificate_file = options.certificate_file.as_deref();
        let certificate_file =
            certificate_file.ok_or_else(|| missing("No tls-cert-file configured!"))?;
        let key_file = options.key_file.as_deref();
        let key_file = key_file.ok_or_else(|| missing("No tls-key-file configured!"))?;
        let asks = options.client_auth != ClientAuth::No;
        let (file, directory) = (&options.authorities_file, &options.authorities_directory);
        if asks && file.is_none() && directory.is_none() {
            return Err(missing(
                "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-auth-clients \
                 is enabled!",
            ));
        }
        let provider = Arc::new(ciphers::provider(&options.ciphers, &options.cipher_suites)?);
        let chain = files::chain(certificate_file)?;
        let own = chain.first().and_then(|one| certificate::describe(one));
        let key = key::load(key_file, options.key_password.as_deref())?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|error| SetupError::content(key_file, format!("{error}")))?;
        let identity =
            pair(chain, key).map_err(|what| SetupError::content(certificate_file, what))?;
        let authorities = asks
            .then(|| files::authorities(file.as_deref(), directory.as_deref()))
            .transpose()?;
        let first = authorities.as_ref().and_then(|all| all.first.clone());
        let mut config = Self::config(options, provider, authorities, identity)?;
        if options.caches_sessions {
            let (count, lifetime_s) = (options.sessions_max, options.sessions_lifetime_s);
            config.session_storage = Arc::new(Sessions::new(Arc::clone(clock), count, lifetime_s));
            config.send_tls13_tickets = 1;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.ignore_client_order = options.prefers_own_order;
        Ok(Self {
            config: Arc::new(config),
            certificate: own,
            authority: first.and_then(|one| certificate::describe(&one)),
        })
    }

    fn config(
        options: &ServerOptions,
        provider: Arc<CryptoProvider>,
        authorities: Option<files::Authorities>,
        identity: CertifiedKey,
    ) -> Result<ServerConfig, SetupError> {
        let impossible = |error: &dyn std::fmt::Display| SetupError::Options(error.to_string());
        let versions = ciphers::versions(&options.protocols)?;
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| impossible(&error))?;
        let config = match authorities {
            None => config.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(authorities.store);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match options.client_auth {
                    ClientAuth::Required => verifier,
                    _ => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|error| impossible(&error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        Ok(config.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity))))
    }
}

/// Pairs a certificate with its key, unless the key belongs to another certificate.
pub(crate) fn pair(
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn rustls::sign::SigningKey>,
) -> Result<CertifiedKey, String> {
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err("the key is not that of the certificate".to_owned())
        }
        // An old form of certificate may be shown, even if its key could not be compared.
        _ => Ok(pair),
    }
}
