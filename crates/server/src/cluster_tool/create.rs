//! `iolite cluster create`: makes a cluster from nodes that are by themselves.
//!
//! ```text
//!   hash slots in equal parts to the first ones ─► all others meet the first ─► the rest become replicas, of a primary on
//!                                                                               another host where there is one
//!                                                          ─► each replica has what its primary has
//! ```
//!
//! Before anything is changed, all nodes are checked to be in cluster mode, by themselves, empty
//! and without hash slots.

use std::io;
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use base::hash_slot::HASH_SLOTS;
use protocol::Value;
use tool::endpoint::{Address as Place, Endpoint, Session};

use super::quoted;
use crate::config::LINK_PORT_DISTANCE;
use crate::doctor::{command, connect, reply_bytes};

/// Time between two checks of a node.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of checks of a node.
const LOOKS_MAX: u32 = 600;

/// A node of the new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    link_port: u16,
}

impl Address {
    /// Parses `HOST:PORT[@LINK_PORT]`.
    fn of(text: &str) -> Option<Self> {
        let (text, link_port) = match text.split_once('@') {
            Some((text, link_port)) => (text, Some(link_port.parse().ok()?)),
            None => (text, None),
        };
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let link_port = match link_port {
            Some(link_port) => link_port,
            None => u16::checked_add(port, LINK_PORT_DISTANCE)?,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
            link_port,
        })
    }
}

/// The role of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A primary with these hash slots: the first and the last.
    Primary(u16, u16),
    /// A replica of the node at this index.
    Replica(usize),
}

/// Returns the roles of the nodes, with `replicas` for each primary.
fn plan(hosts: &[&str], replicas: usize) -> Result<Vec<Part>, String> {
    let primaries = hosts.len() / (replicas + 1);
    if primaries == 0 || primaries > HASH_SLOTS {
        return Err(format!(
            "{} nodes are too few for a primary with {replicas} replicas",
            hosts.len()
        ));
    }
    let slot = |at: usize| u16::try_from(at * HASH_SLOTS / primaries).unwrap_or(u16::MAX);
    let mut parts: Vec<Part> = (0..primaries)
        .map(|at| Part::Primary(slot(at), slot(at + 1) - 1))
        .collect();
    let mut copies = vec![0; primaries];
    for host in &hosts[primaries..] {
        // Prefer the primary with the fewest copies, then one on another machine.
        let crowd = |at: &usize| (copies[*at], hosts[*at] == *host);
        let of = (0..primaries).min_by_key(crowd).unwrap_or(0);
        copies[of] += 1;
        parts.push(Part::Replica(of));
    }
    spread(&mut parts, hosts);
    Ok(parts)
}

/// Swaps replicas that are on their primary's machine with others, if both are then on other
/// machines than their primaries.
fn spread(parts: &mut [Part], hosts: &[&str]) {
    let of = |part: &Part| match part {
        Part::Replica(of) => Some(*of),
        Part::Primary(..) => None,
    };
    for at in 0..parts.len() {
        let Some(own) = of(&parts[at]).filter(|own| hosts[*own] == hosts[at]) else {
            continue;
        };
        let is_better = |other: &usize| {
            of(&parts[*other])
                .is_some_and(|of| hosts[of] != hosts[at] && hosts[own] != hosts[*other])
        };
        if let Some(other) = (0..parts.len()).find(is_better) {
            parts.swap(at, other);
        }
    }
}

/// Makes a cluster of these nodes. `as_whom` is the login for all of them.
pub(super) fn create(
    as_whom: &Endpoint,
    nodes: &[String],
    replicas: usize,
    is_json: bool,
) -> Result<String, String> {
    let parts = make(as_whom, nodes, replicas)?;
    let told = |(node, part): (&String, &Part)| match (is_json, part) {
        (false, Part::Primary(first, last)) => format!("{node:<22} primary of {first}-{last}\n"),
        (false, Part::Replica(of)) => format!("{node:<22} replica of {}\n", nodes[*of]),
        (true, Part::Primary(first, last)) => format!(
            "{{\"address\":{},\"role\":\"primary\",\"slots\":[{first},{last}]}}",
            quoted(node)
        ),
        (true, Part::Replica(of)) => format!(
            "{{\"address\":{},\"role\":\"replica\",\"primary\":{}}}",
            quoted(node),
            quoted(&nodes[*of])
        ),
    };
    let told: Vec<String> = nodes.iter().zip(&parts).map(told).collect();
    Ok(match is_json {
        true => format!("{{\"is_good\":true,\"nodes\":[{}]}}\n", told.join(",")),
        false => told.concat(),
    })
}

fn make(as_whom: &Endpoint, nodes: &[String], replicas: usize) -> Result<Vec<Part>, String> {
    let addresses: Vec<Address> = nodes
        .iter()
        .map(|text| Address::of(text).ok_or_else(|| format!("{text}: no HOST:PORT[@LINK_PORT]")))
        .collect::<Result<_, _>>()?;
    let hosts: Vec<&str> = addresses.iter().map(|node| node.host.as_str()).collect();
    let parts = plan(&hosts, replicas)?;
    let mut streams = Vec::new();
    let mut ids = Vec::new();
    for (node, name) in addresses.iter().zip(nodes) {
        let target = Endpoint {
            address: Place::Tcp(node.host.clone(), node.port),
            ..as_whom.clone()
        };
        let mut stream = connect(&target).map_err(|error| format!("{name}: {error}"))?;
        check_free(&mut stream).map_err(|reason| format!("{name}: {reason}"))?;
        ids.push(
            ask(&mut stream, &["CLUSTER", "MYID"]).map_err(|reason| format!("{name}: {reason}"))?,
        );
        streams.push(stream);
    }
    for (at, part) in parts.iter().enumerate() {
        let Part::Primary(first, last) = part else {
            continue;
        };
        let words = [
            "CLUSTER",
            "ADDSLOTSRANGE",
            &first.to_string(),
            &last.to_string(),
        ];
        ask(&mut streams[at], &words).map_err(|reason| format!("{}: {reason}", nodes[at]))?;
    }
    let first = &addresses[0];
    let (port, link_port) = (first.port.to_string(), first.link_port.to_string());
    let ip = ip_of(first).map_err(|error| format!("{}: {error}", nodes[0]))?;
    for (at, stream) in streams.iter_mut().enumerate().skip(1) {
        let met = ask(stream, &["CLUSTER", "MEET", &ip, &port, &link_port]);
        met.map_err(|reason| format!("{}: {reason}", nodes[at]))?;
    }
    for (at, part) in parts.iter().enumerate() {
        let Part::Replica(of) = part else { continue };
        let followed = ask(&mut streams[at], &["CLUSTER", "REPLICATE", &ids[*of]]);
        followed.map_err(|reason| format!("{}: {reason}", nodes[at]))?;
    }
    for (at, part) in parts.iter().enumerate() {
        let Part::Replica(of) = part else { continue };
        if !has_caught_up(&mut streams[at]).map_err(|reason| format!("{}: {reason}", nodes[at]))? {
            return Err(format!(
                "{}: it has not all of {} yet; otherwise the cluster is made",
                nodes[at], nodes[*of]
            ));
        }
    }
    Ok(parts)
}

/// Waits until a replica has what its primary has, and returns whether it does in the time that
/// empty nodes need at most. A client that reads the cluster earlier would find the replica
/// loading.
fn has_caught_up(stream: &mut Session) -> Result<bool, String> {
    for _ in 0..LOOKS_MAX {
        if ask(stream, &["INFO", "replication"])?.contains("master_link_status:up") {
            return Ok(true);
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(false)
}

fn ip_of(node: &Address) -> io::Result<String> {
    let mut found = (node.host.as_str(), node.port).to_socket_addrs()?;
    let address = found.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(address.ip().to_string())
}

/// Checks that a node can be part of a new cluster.
fn check_free(stream: &mut Session) -> Result<(), String> {
    let info = ask(stream, &["CLUSTER", "INFO"])?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.strip_prefix(':'))
            .unwrap_or_default()
            .to_owned()
    };
    if field("cluster_known_nodes") != "1" || field("cluster_slots_assigned") != "0" {
        return Err("it is of a cluster already, or owns hash slots".to_owned());
    }
    match command(stream, &["DBSIZE"]) {
        Ok(Value::Integer(0)) => Ok(()),
        Ok(_) => Err("it has keys".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Errors of a node that has just started, or does not know another one yet. The question is
/// repeated.
const PASSING: [&str; 3] = [
    "LOADING",
    "ERR this node does not take part in its cluster yet",
    "ERR Unknown node",
];

/// Repeats a question until its answer is not one of these.
fn ask(stream: &mut Session, words: &[&str]) -> Result<String, String> {
    let mut told = ask_once(stream, words);
    for _ in 0..LOOKS_MAX {
        let is_passing = |reason: &String| PASSING.iter().any(|start| reason.starts_with(start));
        if !told.as_ref().is_err_and(is_passing) {
            break;
        }
        std::thread::sleep(LOOK_PAUSE);
        told = ask_once(stream, words);
    }
    told
}

fn ask_once(stream: &mut Session, words: &[&str]) -> Result<String, String> {
    match command(stream, words) {
        Ok(value) => Ok(String::from_utf8_lossy(&reply_bytes(value)).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_and_replicas_are_on_other_hosts() {
        let hosts = ["a", "b", "c", "a", "b", "c"];
        let parts = plan(&hosts, 1).unwrap();
        assert_eq!(parts[0], Part::Primary(0, 5_460));
        assert_eq!(parts[2], Part::Primary(10_922, 16_383));
        for (at, part) in parts.iter().enumerate().skip(3) {
            let Part::Replica(of) = part else {
                panic!("{part:?}")
            };
            assert_ne!(hosts[at], hosts[*of]);
        }
        assert_eq!(plan(&["a"], 0).unwrap(), [Part::Primary(0, 16_383)]);
        assert!(plan(&["a", "b"], 2).is_err());
    }

    #[test]
    fn nodes_are_named_by_host_and_ports() {
        let node = Address::of("db1:7000@7001").unwrap();
        assert_eq!(
            (node.host.as_str(), node.port, node.link_port),
            ("db1", 7_000, 7_001)
        );
        let node = Address::of("[::1]:7000").unwrap();
        assert_eq!((node.host.as_str(), node.link_port), ("::1", 17_000));
        for text in ["db1", "db1:", ":7000", "db1:60000", "db1:70000"] {
            assert_eq!(Address::of(text), None, "{text}");
        }
    }
}
