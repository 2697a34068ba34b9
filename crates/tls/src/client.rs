//! The client's side, for the load generator.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::error::SetupError;
use crate::stream::Stream;
use crate::{ciphers, files, key, server};

/// The directory in which systems keep the authorities that they trust.
pub(crate) const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs";

/// What a client presents and requires, as the options of `redis-benchmark` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// The authorities that may sign the server's certificate; the system's authorities if `None`.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more authorities.
    pub authorities_directory: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// The client's own certificate.
    pub certificate_file: Option<PathBuf>,
    /// The key of the client's certificate.
    pub key_file: Option<PathBuf>,
    /// The name of the server, if it differs from that of its address.
    pub server_name: Option<String>,
    /// Ciphers of TLS 1.2.
    pub ciphers: String,
    /// Ciphers of TLS 1.3.
    pub cipher_suites: String,
}

/// A connection to a server.
pub type ClientStream = Stream<UnbufferedClientConnection>;

/// The configuration that clients of one kind share.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Client {
    /// Reads every file that `options` name.
    ///
    /// # Errors
    /// The first file or option that cannot be used.
    pub fn load(options: &ClientOptions) -> Result<Self, SetupError> {
        let impossible = |error: Error| SetupError::Options(error.to_string());
        let provider = Arc::new(ciphers::provider(&options.ciphers, &options.cipher_suites)?);
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(impossible)?;
        let config = if options.is_insecure {
            let anyone = Arc::new(Anyone(Arc::clone(&provider)));
            config.dangerous().with_custom_certificate_verifier(anyone)
        } else {
            let (file, directory) = (&options.authorities_file, &options.authorities_directory);
            let is_named = file.is_some() || directory.is_some();
            let everybody = (!is_named).then(|| Path::new(SYSTEM_AUTHORITIES));
            let directory = directory.as_deref().or(everybody);
            config.with_root_certificates(files::authorities(file.as_deref(), directory)?.store)
        };
        let mut config = match (&options.certificate_file, &options.key_file) {
            (Some(certificate), Some(key)) => {
                let chain = files::chain(certificate)?;
                let key = provider
                    .key_provider
                    .load_private_key(key::load(key, None)?);
                let pair = server::pair(chain, key.map_err(impossible)?);
                let pair = pair.map_err(|what| SetupError::content(certificate, what))?;
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
            }
            (None, None) => config.with_no_client_auth(),
            _ => {
                let what = "--cert and --key go together".to_owned();
                return Err(SetupError::Options(what));
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            server_name: options.server_name.clone(),
        })
    }

    /// Returns the same client, but one that resumes sessions if the server lets it.
    #[must_use]
    pub fn resuming(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(64);
        Self {
            config: Arc::new(config),
            server_name: self.server_name.clone(),
        }
    }

    /// Returns a connection over `socket` to the server called `host`. Its handshake has not begun.
    ///
    /// # Errors
    /// If `host` is not a valid name.
    pub fn connect(&self, socket: OwnedFd, host: &str) -> Result<ClientStream, SetupError> {
        let host = self.server_name.as_deref().unwrap_or(host);
        let impossible =
            |what: &dyn std::fmt::Display| SetupError::Options(format!("{host}: {what}"));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| impossible(&error))?;
        let side = UnbufferedClientConnection::new(Arc::clone(&self.config), name);
        Ok(Stream::new(
            socket,
            side.map_err(|error| impossible(&error))?,
        ))
    }
}

/// A verifier that accepts every server.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
