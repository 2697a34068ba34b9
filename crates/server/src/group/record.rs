//! This node's record for other nodes: the directives that announce it, and known values where they
//! are not set.

use std::net::{Ipv4Addr, UdpSocket};

use cluster::NodeRecord;
use cluster::state::roles;

use crate::config::Config;

/// Returns the record of a node that was started `start_count` times. A node that is by itself does
/// not know where others reach it, so it announces only what is configured.
pub(crate) fn record(
    config: &Config,
    start_count: u64,
    is_by_itself: bool,
    met_at: Option<&str>,
) -> NodeRecord {
    let told = |told: u16, real: u16| if told == 0 { real } else { told };
    let (cluster, replication) = (&config.cluster, &config.replication);
    let announced = told(cluster.announce_port, replication.announce_port);
    let mut roles = match config.group.is_witness {
        true => roles::WITNESS,
        false => roles::DATA,
    };
    if config.group.keeps_log_alone() {
        roles |= roles::LOG;
    }
    if cluster.is_on {
        roles |= roles::CLUSTER;
    }
    if !cluster.moves_as_replica {
        roles |= roles::STAYS;
    }
    if cluster.declines {
        roles |= roles::DECLINES;
    }
    NodeRecord {
        name: cluster.announce_name.clone(),
        host: match cluster.announce_ip.as_str() {
            "" if is_by_itself => String::new(),
            "" => host_of(config, met_at),
            announced => announced.to_owned(),
        },
        client_port: told(announced, config.client_port()),
        link_port: told(cluster.announce_bus_port, config.link_port()),
        zone: config.availability_zone.clone(),
        roles,
        start_count,
        feature_level: config.group.feature_level,
        hostname: cluster.announce_hostname.clone(),
        tls_port: told(cluster.announce_tls_port, config.tls.port),
    }
}

/// Returns the host at which others find this node: the announced one, the one it listens at, the
/// one at which another node reached it, or the address from which it would reach others.
fn host_of(config: &Config, met_at: Option<&str>) -> String {
    if let Some(host) = &config.replication.announce_host {
        return host.clone();
    }
    let is_one = |host: &&str| !host.contains('*') && *host != "0.0.0.0" && *host != "::";
    let bound = config.bind.iter().map(|one| one.host.as_str()).find(is_one);
    // An address that this machine no longer has is from an earlier start.
    let met_at = met_at.filter(|host| is_this_machine(host));
    let reached = match (met_at, &config.group.join) {
        (Some(host), _) => Some(host.to_owned()),
        (None, Some((host, port))) => local_address((host.as_str(), *port)),
        (None, None) if !has_links_from_afar(config) => None,
        // Nothing is sent to this address, which is reserved for documentation. Without a route to
        // it there may still be a network.
        (None, None) => local_address(("192.0.2.1", 9)).or_else(address_on_a_network),
    };
    match (bound, reached) {
        // If it is bound to this machine alone, no other machine reaches it.
        (Some(bound), Some(reached)) if bound.starts_with("127.") || bound == "::1" => {
            match reached.starts_with("127.") || config.bind.len() == 1 {
                true => bound.to_owned(),
                false => reached,
            }
        }
        (Some(bound), _) => bound.to_owned(),
        (None, Some(reached)) => reached,
        (None, None) => "127.0.0.1".to_owned(),
    }
}

/// Whether nodes on other machines may link to this one.
fn has_links_from_afar(config: &Config) -> bool {
    let replication = &config.replication;
    let is_secret = replication.link_secret.is_some() || replication.password.is_some();
    is_secret || replication.links_by_certificate
}

/// Whether a host is a loopback name or address.
#[cfg(feature = "cluster")]
fn is_near(host: &str) -> bool {
    host == "::1" || host == "localhost" || host.starts_with("127.")
}

/// Whether this node is announced at an address at which it serves no client, because `bind` names
/// loopback addresses only.
#[cfg(feature = "cluster")]
pub(crate) fn is_bound_too_narrowly(config: &Config, record: &NodeRecord) -> bool {
    let announced = &config.replication.announce_host;
    let is_announced = announced.is_some() || !config.cluster.announce_ip.is_empty();
    let serves_near = config.bind.iter().all(|one| is_near(&one.host));
    serves_near && !is_announced && !record.host.is_empty() && !is_near(&record.host)
}

/// Whether other machines may link to this node, but it has no address for them.
#[cfg(feature = "cluster")]
pub(crate) fn is_nowhere(config: &Config, record: &NodeRecord) -> bool {
    let serves_others = !config.bind.iter().all(|one| is_near(&one.host));
    serves_others && has_links_from_afar(config) && is_near(&record.host)
}

/// Returns this machine's address on a connected network, for a machine without a route out of it.
fn address_on_a_network() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let mut neighbours = neighbours(&routes);
    neighbours.find_map(|neighbour| local_address((neighbour.to_string().as_str(), 9)))
}

/// Returns an address on each network of the system's routing table.
fn neighbours(routes: &str) -> impl Iterator<Item = Ipv4Addr> {
    routes.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        // The numbers are in memory order. The destination is the second word, the mask the eighth.
        let address = |word: Option<&str>| {
            let number = u32::from_str_radix(word?, 16).ok()?;
            Some(u32::from_be(number))
        };
        let destination = address(words.nth(1))?;
        let mask = address(words.nth(5))?;
        let is_network = mask != 0 && destination >> 24 != 127;
        is_network.then(|| Ipv4Addr::from(destination | (1 & !mask)))
    })
}

/// Whether this machine has an address.
pub(crate) fn is_this_machine(host: &str) -> bool {
    UdpSocket::bind((host, 0)).is_ok()
}

/// Returns the address of this machine from which another one is reached.
pub(crate) fn local_address(to: (&str, u16)) -> Option<String> {
    for from in ["0.0.0.0:0", "[::]:0"] {
        let socket = UdpSocket::bind(from).ok()?;
        if socket.connect(to).is_ok() {
            return Some(socket.local_addr().ok()?.ip().to_string());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_from_the_table_of_routes() {
        let word = |address: [u8; 4]| format!("{:08X}", u32::from_be_bytes(address).to_be());
        let line = |destination, mask| {
            let (destination, mask) = (word(destination), word(mask));
            format!("e0\t{destination}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let table = [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n",
            &line([0, 0, 0, 0], [0, 0, 0, 0]),
            &line([10, 77, 0, 0], [255, 255, 255, 0]),
            &line([127, 0, 0, 0], [255, 0, 0, 0]),
            &line([10, 9, 8, 7], [255, 255, 255, 255]),
            "nonsense\n",
        ]
        .concat();
        let found: Vec<Ipv4Addr> = neighbours(&table).collect();
        assert_eq!(
            found,
            [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 9, 8, 7)]
        );
        assert_eq!(neighbours("").count(), 0);
    }

    #[test]
    fn an_address_that_was_reached_counts_while_this_machine_has_it() {
        assert!(is_this_machine("127.0.0.1"));
        // Reserved for documentation, so no machine has it.
        assert!(!is_this_machine("192.0.2.1"));
    }
}
