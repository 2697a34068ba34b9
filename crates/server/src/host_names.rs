//! Resolution of other nodes' host names. If a name does not resolve for a while, its last
//! addresses are used, so that an unavailable name service does not interrupt known connections.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Mutex, PoisonError};

use crate::log::Log;

/// Maximum number of names that are kept. A group has a few dozen nodes, but a client may pass any
/// name to REPLICAOF.
const NAMES_MAX: usize = 1_024;

/// Last known addresses of each name.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    known: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<IpAddr>,
    /// Whether the log already says that they are old.
    is_told: bool,
}

impl HostNames {
    /// Returns the addresses of a host, each with this port; the last known ones if its name does
    /// not resolve now.
    ///
    /// # Errors
    /// Those of the system, if the name was never resolved.
    pub(crate) fn resolve(&self, host: &str, port: u16, log: &Log) -> io::Result<Vec<SocketAddr>> {
        let warn = |error: &io::Error| {
            log.warning(format_args!(
                "The name {host} does not resolve, its last address is used: {error}"
            ));
        };
        let look_up = || (host, port).to_socket_addrs().map(Iterator::collect);
        self.resolve_by(host, port, look_up, warn)
    }

    fn resolve_by(
        &self,
        host: &str,
        port: u16,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>>,
        warn: impl FnOnce(&io::Error),
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        // This may take seconds, so nothing is locked.
        let found = look_up();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                if known.len() >= NAMES_MAX && !known.contains_key(host) {
                    known.pop_first();
                }
                let addresses = found.iter().map(SocketAddr::ip).collect();
                let is_told = false;
                known.insert(host.to_owned(), Known { addresses, is_told });
                Ok(found)
            }
            Err(error) => {
                let Some(last) = known.get_mut(host) else {
                    return Err(error);
                };
                if !std::mem::replace(&mut last.is_told, true) {
                    warn(&error);
                }
                let addresses = last.addresses.iter();
                Ok(addresses.map(|ip| SocketAddr::new(*ip, port)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_name_that_does_not_resolve_is_where_it_was() {
        let names = HostNames::default();
        let told = Cell::new(0);
        let at = |port| SocketAddr::from(([10, 0, 0, 7], port));
        let fails = || Err(io::Error::other("no name service"));
        let warn = |_: &io::Error| told.set(told.get() + 1);
        assert!(names.resolve_by("db1", 1, fails, warn).is_err());
        assert_eq!(told.get(), 0, "there is nothing to be used");
        for round in 1..=2 {
            let found = names.resolve_by("db1", 1, || Ok(vec![at(1)]), warn);
            assert_eq!(found.unwrap(), [at(1)]);
            for port in [1, 2] {
                let last = names.resolve_by("db1", port, fails, warn);
                assert_eq!(last.unwrap(), [at(port)]);
            }
            assert_eq!(told.get(), round, "once each time");
        }
        assert!(names.resolve_by("db2", 1, fails, warn).is_err());
    }

    #[test]
    fn addresses_need_no_name_service_and_names_are_bounded() {
        let names = HostNames::default();
        let never = || unreachable!("nobody is asked");
        let found = names.resolve_by("::1", 7, never, |_| ());
        assert_eq!(
            found.unwrap(),
            [SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 7))]
        );
        for number in 0..2 * NAMES_MAX {
            let host = format!("host-{number}");
            let found = names.resolve_by(&host, 1, || Ok(Vec::new()), |_| ());
            assert!(found.unwrap().is_empty());
        }
        assert_eq!(names.known.lock().unwrap().len(), NAMES_MAX);
    }
}
