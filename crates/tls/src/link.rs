//! Links between nodes: TLS 1.3 over a blocking socket that one thread reads and another thread
//! writes.
//!
//! ```text
//!   reading thread:  socket ──► records ──┐                ┌──► bytes
//!                                         ├─ Connection ───┤          locked for a record, never while a socket waits
//!   writing thread:  socket ◄── records ──┘                └──◄ bytes
//! ```
//!
//! Nodes show each other certificates that an authority signed ([`LinkTls::of_certificates`]), or
//! keys that each node makes for itself at its start ([`LinkTls::self_made`]). Such a key does not
//! prove a node's identity. The nodes prove that over [`LinkStream::exporter`], which is known to
//! both ends of one handshake and to no man in the middle.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use base::clock::{Clock as _, SystemClock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, ParsedCertificate,
    WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, Connection, DigitallySignedStruct, Error,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, WantsVerifier,
};

use crate::error::{HandshakeError, SetupError};
use crate::server::ServerOptions;
use crate::{ciphers, files, key, server};

/// The label of the exporter's bytes, which names their purpose.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-iolite-link";
/// Names are not verified: everyone with a certificate of the authority is a node.
const NAME: &str = "node.invalid";
/// Number of bytes encrypted at once.
const SEND_BYTES: usize = 64 << 10;
/// Number of bytes received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Maximum size of a handshake.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;

/// The configuration with which a node encrypts its links.
#[derive(Debug)]
pub struct LinkTls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl LinkTls {
    /// Makes a new key for this process alone.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn self_made() -> Result<Self, SetupError> {
        let impossible = |what: &dyn std::fmt::Display| SetupError::Options(what.to_string());
        let provider = Arc::new(ciphers::provider("", "")?);
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|error| impossible(&error))?;
        let key = PrivatePkcs8KeyDer::from(key.as_ref().to_vec());
        let key = provider.key_provider.load_private_key(key.into());
        let key = key.map_err(|error| impossible(&error))?;
        let public = key
            .public_key()
            .ok_or_else(|| impossible(&"no public key"))?;
        let pair = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
        let server = server_side(&provider)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(
                pair,
            ))));
        let client = client_side(provider, None)?.with_no_client_auth();
        Ok(Self::new(server, client))
    }

    /// Uses the certificate, key and authorities that `options` name. Peers must have a certificate
    /// of the same authorities.
    ///
    /// # Errors
    /// The first file or option that cannot be used.
    pub fn of_certificates(options: &ServerOptions) -> Result<Self, SetupError> {
        let impossible = |error: &dyn std::fmt::Display| SetupError::Options(error.to_string());
        let missing = |what: &str| SetupError::Options(format!("tls-replication takes {what}"));
        let file = options.certificate_file.as_deref();
        let file = file.ok_or_else(|| missing("tls-cert-file"))?;
        let key_file = options.key_file.as_deref();
        let key_file = key_file.ok_or_else(|| missing("tls-key-file"))?;
        let (authority, directory) = (&options.authorities_file, &options.authorities_directory);
        if authority.is_none() && directory.is_none() {
            return Err(missing("tls-ca-cert-file or tls-ca-cert-dir"));
        }
        let provider = Arc::new(ciphers::provider("", &options.cipher_suites)?);
        let key = key::load(key_file, options.key_password.as_deref())?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|error| SetupError::content(key_file, format!("{error}")))?;
        let pair = server::pair(files::chain(file)?, key)
            .map_err(|what| SetupError::content(file, what))?;
        let resolver = Arc::new(SingleCertAndKey::from(pair));
        let authorities = files::authorities(authority.as_deref(), directory.as_deref())?;
        let authorities = Arc::new(authorities.store);
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::clone(&authorities),
            Arc::clone(&provider),
        );
        let verifier = verifier.build().map_err(|error| impossible(&error))?;
        let server = server_side(&provider)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::<SingleCertAndKey>::clone(&resolver));
        let client = client_side(provider, Some(authorities))?.with_client_cert_resolver(resolver);
        Ok(Self::new(server, client))
    }

    fn new(mut server: ServerConfig, mut client: ClientConfig) -> Self {
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        client.resumption = Resumption::disabled();
        Self {
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    /// Makes the handshake of the side that accepted a connection.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn accept(&self, socket: TcpStream, time: Duration) -> Result<LinkStream, HandshakeError> {
        let side = ServerConnection::new(Arc::clone(&self.server))?;
        LinkStream::shake(socket, side.into(), time)
    }

    /// Makes the handshake of the side that opened a connection.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn connect(&self, socket: TcpStream, time: Duration) -> Result<LinkStream, HandshakeError> {
        let name = ServerName::try_from(NAME).map_err(|_| HandshakeError::Stopped)?;
        let side = ClientConnection::new(Arc::clone(&self.client), name)?;
        LinkStream::shake(socket, side.into(), time)
    }
}

/// An encrypted connection between nodes. See the module.
pub struct LinkStream {
    socket: TcpStream,
    connection: Mutex<Connection>,
    receiving: Mutex<Receiving>,
    sending: Mutex<Sending>,
    exporter: [u8; 32],
}

/// Received records that are not decrypted yet.
struct Receiving {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Records that wait to be sent, and the number of plain bytes that they encode.
#[derive(Default)]
struct Sending {
    records: Vec<u8>,
    sent: usize,
    taken: usize,
}

impl LinkStream {
    fn shake(
        socket: TcpStream,
        mut side: Connection,
        time: Duration,
    ) -> Result<Self, HandshakeError> {
        side.set_buffer_limit(None);
        let clock = SystemClock::new();
        let end_ns = clock.monotonic_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 1);
        let mut received = 0;
        while side.is_handshaking() || side.wants_write() {
            if clock.monotonic_ns() > end_ns {
                return Err(HandshakeError::TimedOut);
            }
            if side.wants_write() {
                side.write_tls(&mut &socket).map_err(in_time)?;
                continue;
            }
            let count = side.read_tls(&mut &socket).map_err(in_time)?;
            received += count;
            match count {
                0 => return Err(HandshakeError::Departed),
                _ if received > HANDSHAKE_BYTES_MAX => return Err(HandshakeError::TooMuch),
                _ => {}
            }
            if let Err(error) = side.process_new_packets() {
                // Sends the peer the reason.
                let _told = side.write_tls(&mut &socket);
                return Err(error.into());
            }
        }
        let exporter = side.export_keying_material([0; 32], EXPORTER_LABEL, None)?;
        Ok(Self {
            socket,
            connection: Mutex::new(side),
            receiving: Mutex::new(Receiving {
                bytes: vec![0; RECEIVE_BYTES],
                start: 0,
                end: 0,
            }),
            sending: Mutex::default(),
            exporter,
        })
    }

    /// Returns the bytes that only the two ends of this handshake know.
    #[must_use]
    pub fn exporter(&self) -> [u8; 32] {
        self.exporter
    }

    /// Returns the underlying socket.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Receives some bytes. Returns 0 at the end.
    ///
    /// # Errors
    /// Those of the socket, and of records that differ from what the peer sent.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut receiving = lock(&self.receiving);
        loop {
            let mut connection = lock(&self.connection);
            match connection.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let Receiving {
                bytes: records,
                start,
                end,
            } = &mut *receiving;
            if *start < *end {
                *start += connection.read_tls(&mut &records[*start..*end])?;
                let processed = connection.process_new_packets();
                processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                continue;
            }
            drop(connection);
            let count = (&self.socket).read(records)?;
            (*start, *end) = (0, count);
            if count == 0 {
                return Ok(0);
            }
        }
    }

    /// Sends some bytes, and returns how many of them the system has taken. After a timeout error,
    /// the caller must call this again with the same bytes.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut sending = lock(&self.sending);
        let Sending {
            records,
            sent,
            taken,
        } = &mut *sending;
        if *taken == 0 {
            let mut connection = lock(&self.connection);
            let count = bytes.len().min(SEND_BYTES);
            connection.writer().write_all(&bytes[..count])?;
            while connection.wants_write() {
                connection.write_tls(records)?;
            }
            *taken = count;
        }
        while *sent < records.len() {
            match (&self.socket).write(&records[*sent..])? {
                0 => return Ok(0),
                count => *sent += count,
            }
        }
        records.clear();
        *sent = 0;
        Ok(std::mem::take(taken))
    }

    /// Ends the connection. Threads that wait in it return.
    pub fn end(&self) {
        let _gone = self.socket.shutdown(Shutdown::Both);
    }
}

impl std::fmt::Debug for LinkStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkStream").finish_non_exhaustive()
    }
}

fn in_time(error: io::Error) -> HandshakeError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HandshakeError::TimedOut,
        _ => error.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the configuration that accepts links with this provider: TLS 1.3 alone.
fn server_side(
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, SetupError> {
    ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| SetupError::Options(error.to_string()))
}

/// Returns the configuration that opens links with this provider to [`Peers`]: TLS 1.3 alone.
fn client_side(
    provider: Arc<CryptoProvider>,
    authorities: Option<Arc<RootCertStore>>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, SetupError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| SetupError::Options(error.to_string()))?;
    let peers = Peers {
        provider,
        authorities,
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(peers)))
}

/// The verifier of other nodes' certificates.
#[derive(Debug)]
struct Peers {
    provider: Arc<CryptoProvider>,
    /// The authorities that sign the nodes' certificates. If `None`, every peer that owns the key
    /// that it shows is accepted.
    authorities: Option<Arc<RootCertStore>>,
}

impl ServerCertVerifier for Peers {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(authorities) = &self.authorities {
            let shown = ParsedCertificate::try_from(shown)?;
            let known = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&shown, authorities, chain, now, known)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("links are of TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        if self.authorities.is_some() {
            return verify_tls13_signature(message, shown, signed, known);
        }
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.authorities.is_none()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::testing::Files;

    const TIME: Duration = Duration::from_secs(30);

    type Shaken = (
        Result<LinkStream, HandshakeError>,
        Result<LinkStream, HandshakeError>,
    );

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn meet(of_replica: &LinkTls, of_primary: &LinkTls) -> Shaken {
        let (one, other) = sockets();
        thread::scope(|scope| {
            let accepting = scope.spawn(|| of_primary.accept(other, TIME));
            let connected = of_replica.connect(one, TIME);
            (connected, accepting.join().unwrap())
        })
    }

    /// Sends both ways at once, more than the sockets hold.
    fn talk(one: &LinkStream, other: &LinkStream) {
        let text: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let send = |stream: &LinkStream| {
            let mut rest = &text[..];
            while !rest.is_empty() {
                rest = &rest[stream.send(rest).unwrap()..];
            }
        };
        let receive = |stream: &LinkStream| {
            let (mut got, mut bytes) = (Vec::new(), vec![0; 70_000]);
            while got.len() < text.len() {
                let count = stream.receive(&mut bytes).unwrap();
                assert_ne!(count, 0);
                got.extend_from_slice(&bytes[..count]);
            }
            assert!(got == text);
        };
        thread::scope(|scope| {
            for stream in [one, other] {
                scope.spawn(move || send(stream));
                scope.spawn(move || receive(stream));
            }
        });
        one.end();
        assert_eq!(other.receive(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn both_ends_have_one_exporter_and_hear_each_other() {
        let files = Files::new();
        let certified = || LinkTls::of_certificates(&files.server_options()).unwrap();
        let made = || LinkTls::self_made().unwrap();
        for (one, other) in [(made(), made()), (certified(), certified())] {
            let (connected, accepted) = meet(&one, &other);
            let (connected, accepted) = (connected.unwrap(), accepted.unwrap());
            assert_eq!(connected.exporter(), accepted.exporter());
            let (second, _) = meet(&one, &other);
            assert_ne!(second.unwrap().exporter(), connected.exporter());
            talk(&connected, &accepted);
        }
    }

    #[test]
    fn who_has_no_certificate_of_the_authority_is_not_let_in() {
        let (own, others) = (Files::new(), Files::new());
        let certified = |files: &Files| LinkTls::of_certificates(&files.server_options()).unwrap();
        let (connected, accepted) = meet(&certified(&others), &certified(&own));
        assert!(connected.is_err() && accepted.is_err());
        let (connected, accepted) = meet(&LinkTls::self_made().unwrap(), &certified(&own));
        assert!(connected.is_err() && accepted.is_err());
        let mut options = own.server_options();
        options.authorities_file = None;
        let refused = LinkTls::of_certificates(&options).unwrap_err().to_string();
        assert!(
            refused.contains("tls-replication takes tls-ca-cert-file"),
            "{refused}"
        );
    }
}
