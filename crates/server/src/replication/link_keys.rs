//! The keys with which a node authenticates itself on encrypted own links: the certificates of the
//! configuration, or a key that the node makes.

use super::link_tls::LinkTls;
use crate::config::TlsRules;

/// Reads the certificates of the configuration, or makes a key.
#[cfg(feature = "tls")]
pub(super) fn load(by_certificate: bool, rules: &TlsRules) -> Result<LinkTls, String> {
    let made = match by_certificate {
        true => LinkTls::of_certificates(&crate::tls::options(rules)),
        false => LinkTls::self_made(),
    };
    made.map_err(|error| error.to_string())
}

/// Fails, because this build has no TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn load(_: bool, _: &TlsRules) -> Result<LinkTls, String> {
    Err("this server was built without encrypted connections (repl-tls no)".to_owned())
}
