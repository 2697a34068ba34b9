//! Views of the cluster: INFO NODES SLOTS SHARDS REPLICAS LINKS MYID MYSHARDID.

use std::fmt::Write as _;

use engine::args::Args;
use engine::cluster::{ClusterSeen, EndpointKind, NodeSeen};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use protocol::Reply;

use super::{about, seen};

pub(super) fn info(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let assigned = seen.slots_assigned();
    let failed = |node: &&NodeSeen| node.is_failed;
    let count = |node: &NodeSeen| -> usize {
        let slots = |(first, last): &(u16, u16)| usize::from(last - first) + 1;
        node.ranges.iter().map(slots).sum()
    };
    let slots_failed: usize = seen.nodes.iter().filter(failed).map(count).sum();
    let size = seen
        .nodes
        .iter()
        .filter(|node| !node.ranges.is_empty())
        .count();
    let fields: [(&str, String); 16] = [
        (
            "cluster_state",
            (if seen.is_ok { "ok" } else { "fail" }).to_owned(),
        ),
        ("cluster_slots_assigned", assigned.to_string()),
        ("cluster_slots_ok", (assigned - slots_failed).to_string()),
        ("cluster_slots_pfail", "0".to_owned()),
        ("cluster_slots_fail", slots_failed.to_string()),
        ("cluster_known_nodes", seen.nodes.len().to_string()),
        ("cluster_size", size.to_string()),
        ("cluster_current_epoch", seen.epoch.to_string()),
        (
            "cluster_my_epoch",
            seen.me().map_or(0, |me| me.epoch).to_string(),
        ),
        ("cluster_stats_messages_sent", seen.messages.0.to_string()),
        (
            "cluster_stats_messages_received",
            seen.messages.1.to_string(),
        ),
        ("total_cluster_links_buffer_limit_exceeded", "0".to_owned()),
        ("control_leader", seen.leader.clone()),
        ("control_term", seen.control_term.to_string()),
        ("control_fault_tolerance", seen.fault_tolerance.to_string()),
        (
            "published_messages_dropped",
            seen.dropped_messages.to_string(),
        ),
    ];
    let mut text = String::new();
    for (name, value) in fields {
        let _infallible = write!(text, "{name}:{value}\r\n");
    }
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn nodes(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let lines: String = seen.nodes.iter().map(line).collect();
    reply.verbatim("txt", lines.as_bytes());
    Ok(())
}

/// Returns the port that is shown first.
fn port(node: &NodeSeen) -> u16 {
    if node.port == 0 {
        node.tls_port
    } else {
        node.port
    }
}

/// Returns the line of a node.
fn line(node: &NodeSeen) -> String {
    let mut flags = Vec::new();
    if node.is_me {
        flags.push("myself");
    }
    if node.is_in_handshake {
        flags.push("handshake");
    } else {
        flags.push(if node.primary.is_some() {
            "slave"
        } else {
            "master"
        });
    }
    if node.is_failed {
        flags.push("fail");
    }
    if node.declines {
        flags.push("nofailover");
    }
    let address = match node.hostname.as_str() {
        "" => String::new(),
        hostname => format!(",{hostname}"),
    };
    let mut text = format!(
        "{} {}:{}@{}{address} {} {} {} {} {} {}",
        node.id,
        node.ip,
        port(node),
        node.bus_port,
        flags.join(","),
        node.primary.as_deref().unwrap_or("-"),
        node.ping_unix_ms,
        node.pong_unix_ms,
        node.epoch,
        if node.is_failed || node.is_lost {
            "disconnected"
        } else {
            "connected"
        },
    );
    for (first, last) in &node.ranges {
        let _infallible = if first == last {
            write!(text, " {first}")
        } else {
            write!(text, " {first}-{last}")
        };
    }
    text.push('\n');
    text
}

/// Returns the replicas of a primary that clients see. All nodes list them in the same order,
/// because clients, including Valkey's own tools, compare the answers of several nodes literally.
fn replicas_of<'s>(seen: &'s ClusterSeen, primary: &'s NodeSeen) -> Vec<&'s NodeSeen> {
    let follows = |node: &&NodeSeen| node.primary.as_deref() == Some(&*primary.id);
    let mut replicas: Vec<_> = seen.nodes.iter().filter(follows).collect();
    replicas.sort_unstable_by(|one, two| one.id.cmp(&two.id));
    replicas
}

pub(super) fn slots(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let is_encrypted = is_encrypted(context);
    let mut ranges: Vec<_> = seen
        .nodes
        .iter()
        .flat_map(|node| node.ranges.iter().map(move |range| (*range, node)))
        .collect();
    ranges.sort_by_key(|(range, _)| *range);
    reply.array(ranges.len());
    for ((first, last), primary) in ranges {
        let mut replicas = replicas_of(&seen, primary);
        replicas.retain(|node| !node.is_failed);
        reply.array(3 + replicas.len());
        reply.integer(first.into());
        reply.integer(last.into());
        for node in std::iter::once(primary).chain(replicas) {
            slot_node(&seen, node, is_encrypted, reply);
        }
    }
    Ok(())
}

/// Whether the client's connection is encrypted.
fn is_encrypted(context: &Context<'_>) -> bool {
    let tls_port = context.shared.hash_slots.routes().tls_port;
    let local = context.session.client.local_address.rsplit_once(':');
    let port = local.and_then(|(_, port)| port.parse::<u16>().ok());
    tls_port != 0 && port == Some(tls_port)
}

fn slot_node(seen: &ClusterSeen, node: &NodeSeen, is_encrypted: bool, reply: &mut Reply<'_>) {
    reply.array(4);
    endpoint(seen, node, reply);
    let port = if is_encrypted && node.tls_port != 0 {
        node.tls_port
    } else {
        port(node)
    };
    reply.integer(port.into());
    reply.bulk_str(&node.id);
    let mut more: Vec<(&str, &str)> = Vec::new();
    if seen.endpoint != EndpointKind::Ip {
        more.push(("ip", &node.ip));
    }
    if seen.endpoint != EndpointKind::Hostname && !node.hostname.is_empty() {
        more.push(("hostname", &node.hostname));
    }
    if !node.zone.is_empty() {
        more.push(("availability-zone", &node.zone));
    }
    reply.map(more.len());
    for (name, value) in more {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
}

fn endpoint(seen: &ClusterSeen, node: &NodeSeen, reply: &mut Reply<'_>) {
    match seen.endpoint {
        EndpointKind::Ip => reply.bulk_str(&node.ip),
        EndpointKind::Hostname if node.hostname.is_empty() => reply.bulk(b"?"),
        EndpointKind::Hostname => reply.bulk_str(&node.hostname),
        EndpointKind::Unknown => reply.null(),
    }
}

pub(super) fn shards(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let primaries: Vec<_> = seen
        .nodes
        .iter()
        .filter(|node| node.primary.is_none())
        .collect();
    reply.array(primaries.len());
    for primary in primaries {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(primary.ranges.len() * 2);
        for (first, last) in &primary.ranges {
            reply.integer((*first).into());
            reply.integer((*last).into());
        }
        reply.bulk(b"nodes");
        let nodes: Vec<_> = std::iter::once(primary)
            .chain(replicas_of(&seen, primary))
            .collect();
        reply.array(nodes.len());
        for node in nodes {
            shard_node(&seen, node, reply);
        }
    }
    Ok(())
}

fn shard_node(seen: &ClusterSeen, node: &NodeSeen, reply: &mut Reply<'_>) {
    let slot = reply.begin_map();
    let mut count = 0;
    let mut name = |reply: &mut Reply<'_>, name: &str| {
        count += 1;
        reply.bulk_str(name);
    };
    name(reply, "id");
    reply.bulk_str(&node.id);
    for (field, port) in [("port", node.port), ("tls-port", node.tls_port)] {
        if port != 0 {
            name(reply, field);
            reply.integer(port.into());
        }
    }
    name(reply, "ip");
    reply.bulk_str(&node.ip);
    name(reply, "endpoint");
    endpoint(seen, node, reply);
    for (field, value) in [
        ("hostname", &node.hostname),
        ("availability-zone", &node.zone),
    ] {
        if !value.is_empty() {
            name(reply, field);
            reply.bulk_str(value);
        }
    }
    name(reply, "role");
    reply.bulk_str(if node.primary.is_some() {
        "replica"
    } else {
        "master"
    });
    name(reply, "replication-offset");
    reply.integer(i64::try_from(node.replication_offset).unwrap_or(i64::MAX));
    name(reply, "health");
    reply.bulk_str(if node.is_failed {
        "fail"
    } else if node.is_loading {
        "loading"
    } else {
        "online"
    });
    reply.end_map(slot, count);
}

pub(super) fn replicas(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let id = args.bytes()?;
    let Some(primary) = seen.node(id) else {
        return Err(about("ERR Unknown node ", id, ""));
    };
    if primary.primary.is_some() {
        return Err(CommandError::fixed(
            "ERR The specified node is not a master",
        ));
    }
    let replicas = replicas_of(&seen, primary);
    let lines: Vec<_> = replicas.into_iter().map(line).collect();
    reply.array(lines.len());
    for line in &lines {
        reply.bulk_str(line.trim_end());
    }
    Ok(())
}

/// Writes one word about this node.
fn of_me(
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
    word: fn(&NodeSeen) -> &str,
) -> CommandResult {
    let seen = seen(context)?;
    reply.bulk_str(seen.me().map_or("", word));
    Ok(())
}

pub(super) fn my_id(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    of_me(context, reply, |me| &me.id)
}

pub(super) fn my_shard_id(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    of_me(context, reply, |me| &me.shard_id)
}

pub(super) fn count_failure_reports(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    let id = args.bytes()?;
    if seen.node(id).is_none() {
        return Err(about("ERR Unknown node ", id, ""));
    }
    // One leader decides, without failure reports of other nodes.
    reply.integer(0);
    Ok(())
}

pub(super) fn links(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = seen(context)?;
    reply.array(seen.links.len());
    for link in &seen.links {
        reply.map(6);
        reply.bulk(b"direction");
        reply.bulk_str(if link.is_to { "to" } else { "from" });
        reply.bulk(b"node");
        reply.bulk_str(&link.node);
        reply.bulk(b"create-time");
        reply.integer(i64::try_from(link.created_unix_ms).unwrap_or(i64::MAX));
        // Both ends read and write. Redis waits for writability only while something is to be sent.
        reply.bulk(b"events");
        reply.bulk_str(if link.waiting_bytes > 0 { "rw" } else { "r" });
        // No buffer is allocated in advance.
        for name in ["send-buffer-allocated", "send-buffer-used"] {
            reply.bulk_str(name);
            reply.count(link.waiting_bytes);
        }
    }
    Ok(())
}
