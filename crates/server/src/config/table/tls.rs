//! Directives of encrypted connections.

use super::super::directive::Directive;
use super::super::tls::{ClientCertificate, UserField};
use super::super::value::Kind;
use super::works::spellings;
use super::{COUNT, PORT_MAX, SWITCH, TEXT, integer};

/// Spellings of [`ClientCertificate`].
pub(crate) const CLIENT_CERTIFICATES: [(&str, ClientCertificate); 3] = [
    ("no", ClientCertificate::No),
    ("yes", ClientCertificate::Required),
    ("optional", ClientCertificate::Optional),
];
/// Spellings of [`UserField`].
pub(crate) const USER_FIELDS: [(&str, UserField); 3] = [
    ("off", UserField::Off),
    ("CN", UserField::CommonName),
    ("URI", UserField::Uri),
];

const CLIENT_CERTIFICATE: Kind = Kind::Choice(&spellings(CLIENT_CERTIFICATES));
const USER_FIELD: Kind = Kind::Choice(&spellings(USER_FIELDS));

const PORT: Directive = Directive::new("tls-port", integer(0, PORT_MAX), "0");
// Only at start, because workers recognise its connections by the port.
const MEMCACHED_PORT: Directive =
    Directive::new("tls-memcached-port", integer(0, PORT_MAX), "0").at_start();
const UNIX_SOCKET: Directive = Directive::new("tls-unixsocket", TEXT, "").at_start();
#[cfg(not(feature = "tls"))]
const NOT_BUILT: &str = "was built without TLS";

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    #[cfg(feature = "tls")]
    PORT,
    #[cfg(not(feature = "tls"))]
    PORT.fixed(NOT_BUILT),
    #[cfg(feature = "tls")]
    MEMCACHED_PORT,
    #[cfg(not(feature = "tls"))]
    MEMCACHED_PORT.fixed(NOT_BUILT),
    #[cfg(feature = "tls")]
    UNIX_SOCKET,
    #[cfg(not(feature = "tls"))]
    UNIX_SOCKET.fixed(NOT_BUILT),
    Directive::new("tls-cert-file", TEXT, ""),
    Directive::new("tls-key-file", TEXT, ""),
    Directive::new("tls-key-file-pass", TEXT, "").secret(),
    Directive::new("tls-ca-cert-file", TEXT, ""),
    Directive::new("tls-ca-cert-dir", TEXT, ""),
    Directive::new("tls-auth-clients", CLIENT_CERTIFICATE, "yes"),
    Directive::new("tls-auth-clients-user", USER_FIELD, "off"),
    Directive::new("tls-protocols", TEXT, ""),
    Directive::new("tls-ciphers", TEXT, ""),
    Directive::new("tls-ciphersuites", TEXT, ""),
    Directive::new("tls-prefer-server-ciphers", SWITCH, "no"),
    Directive::new("tls-session-caching", SWITCH, "yes"),
    Directive::new("tls-session-cache-size", COUNT, "20480"),
    Directive::new("tls-session-cache-timeout", COUNT, "300"),
    Directive::new("tls-auto-reload-interval", COUNT, "60"),
];
