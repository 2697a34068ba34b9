//! Tokio connections to servers whose certificate an authority must have signed, such as a
//! collector of metrics.
//!
//! The error of a refused server names the certificate that the server showed and what is wrong
//! with it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::SYSTEM_AUTHORITIES;
use crate::error::SetupError;
use crate::{certificate, ciphers, files};

/// The configuration that connections to servers share.
#[derive(Clone, Debug)]
pub struct Outgoing(Arc<ClientConfig>);

/// The reason why a connection failed.
#[derive(Debug)]
pub enum OutgoingError {
    /// The server's certificate is not trusted.
    Untrusted(Untrusted),
    /// Anything else.
    Failed(io::Error),
}

/// A certificate that is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untrusted {
    /// The certificate's name and serial number, as far as they can be read.
    certificate: String,
    /// The server that the caller meant to reach.
    server: String,
    why: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            certificate,
            server,
            why,
        } = self;
        write!(f, "{server} shows the certificate {certificate}: {why}")
    }
}

impl std::error::Error for Untrusted {}

impl Outgoing {
    /// Reads the authorities that may sign certificates of servers: those in a file, or those that
    /// the system trusts.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub fn load(authorities: Option<&Path>) -> Result<Self, SetupError> {
        let impossible = |error: &dyn fmt::Display| SetupError::Options(error.to_string());
        let provider = Arc::new(ciphers::provider("", "")?);
        let everybody = authorities.is_none().then(|| Path::new(SYSTEM_AUTHORITIES));
        let roots = Arc::new(files::authorities(authorities, everybody)?.store);
        let judge = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let judge = judge.build().map_err(|error| impossible(&error))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| impossible(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Naming(judge)))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// Returns the path that [`Outgoing::load`] reads.
    #[must_use]
    pub fn place(authorities: Option<&Path>) -> &Path {
        authorities.unwrap_or_else(|| Path::new(SYSTEM_AUTHORITIES))
    }

    /// Makes the handshake with the server called `host`.
    ///
    /// # Errors
    /// [`OutgoingError`].
    pub async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, OutgoingError> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| {
            OutgoingError::Failed(io::Error::new(io::ErrorKind::InvalidInput, error))
        })?;
        let connected = TlsConnector::from(Arc::clone(&self.0))
            .connect(name, stream)
            .await;
        connected.map_err(|error| match untrusted(&error) {
            Some(untrusted) => OutgoingError::Untrusted(untrusted),
            None => OutgoingError::Failed(error),
        })
    }
}

/// Returns the finding of [`Naming`], if that is why a handshake failed.
fn untrusted(error: &io::Error) -> Option<Untrusted> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::Other(OtherError(said)) => said.downcast_ref::<Untrusted>().cloned(),
        _ => None,
    }
}

/// A verifier that judges as the wrapped one does, and names the certificate that is not trusted.
#[derive(Debug)]
struct Naming(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Naming {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self
            .0
            .verify_server_cert(shown, chain, server, ocsp_response, now);
        judged.map_err(|error| {
            let untrusted = Untrusted {
                certificate: title(shown),
                server: server.to_str().into_owned(),
                why: error.to_string(),
            };
            Error::Other(OtherError(Arc::new(untrusted)))
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns a certificate's name, if it has one that can be shown, and its serial number.
fn title(shown: &[u8]) -> String {
    let name = certificate::names(shown).and_then(|names| names.common_name);
    let number = certificate::describe(shown).map(|described| described.serial);
    match (name, number) {
        (Some(name), Some(number)) => format!("{name} with the number {number}"),
        (None, Some(number)) => format!("with the number {number}"),
        _ => "that cannot be read".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::Files;

    /// Connects to a server with the certificate in `files`, with these authorities and under this
    /// name.
    fn meet(files: &Files, authorities: &Path, host: &str) -> Result<(), OutgoingError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = files.server();
            let accepting = tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let _may_be_refused = server.accept(stream).await;
            });
            let stream = TcpStream::connect(address).await.unwrap();
            let outgoing = Outgoing::load(Some(authorities)).unwrap();
            let connected = outgoing.connect(stream, host).await.map(drop);
            accepting.await.unwrap();
            connected
        })
    }

    #[test]
    fn a_server_whose_certificate_is_not_trusted_is_named() {
        let (own, others) = (Files::new(), Files::new());
        meet(&own, &own.path("ca.crt"), "localhost").unwrap();
        for (authority, host, why) in [
            (
                others.path("ca.crt"),
                "localhost",
                "invalid peer certificate",
            ),
            (
                own.path("ca.crt"),
                "collector.example",
                "not valid for name",
            ),
        ] {
            match meet(&own, &authority, host) {
                Err(OutgoingError::Untrusted(untrusted)) => {
                    let text = untrusted.to_string();
                    let begins = format!("{host} shows the certificate server with the number ");
                    assert!(text.starts_with(&begins), "{text}");
                    assert!(text.contains(why), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_file_without_authorities_is_named() {
        let files = Files::new();
        files.write("empty.crt", "");
        let refused = Outgoing::load(Some(&files.path("empty.crt"))).unwrap_err();
        assert!(refused.to_string().contains("empty.crt"), "{refused}");
    }
}
