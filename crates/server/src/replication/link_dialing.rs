//! How this node makes a link: which addresses it may connect to, and how it identifies itself
//! there.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use super::session::Identity;
use crate::node::Node;

/// Returns the password that the other end asks for.
pub(super) fn secret_of_replica(node: &Node) -> Vec<u8> {
    let replication = &node.core.config.current().replication;
    let own = replication.link_secret.clone();
    own.or_else(|| replication.password.clone())
        .unwrap_or_default()
}

/// Connects to a node's port for links.
///
/// # Errors
/// Errors of the system, and if another machine may not be contacted without a secret.
pub(crate) fn dial(node: &Node, host: &str, port: u16, time: Duration) -> io::Result<TcpStream> {
    let is_secret = !secret_of_replica(node).is_empty();
    let is_open = is_secret || node.core.config.current().replication.links_by_certificate;
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    let names = &node.replication.host_names;
    for address in names.resolve(host, port, &node.core.log)? {
        if !is_open && !address.ip().is_loopback() {
            return Err(io::Error::other(
                "the own link to another machine takes a secret (cluster-secret or masterauth), or \
                 tls-replication yes with certificates",
            ));
        }
        match TcpStream::connect_timeout(&address, time) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Returns how this node identifies itself to a peer.
///
/// # Errors
/// Why required encryption is not possible.
pub(crate) fn identity_for(node: &Node, peer: IpAddr) -> io::Result<Identity> {
    let config = node.core.config.current();
    let announced = config.replication.announce_host.clone().unwrap_or_default();
    let port = config.port_for_peers();
    let name = format!("{announced}:{port}");
    let own = &node.replication.own;
    let encryption = own.encryption(node, Some(peer));
    Ok(Identity {
        encryption: encryption.map_err(io::Error::other)?,
        is_log_only: node.keeping.keeps_log_alone(),
        ..Identity::new(own.id(), name.as_bytes(), &secret_of_replica(node))
    })
}
