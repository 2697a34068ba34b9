//! Turns the control state into the view for clients, and into the routes that requests are checked
//! against.

use base::hash_slot::HASH_SLOTS;
use cluster::state::Node as Member;
use cluster::{ControlState, NodeId, ShardId};
use engine::cluster::{ClusterSeen, EndpointKind, NodeSeen};
use engine::hash_slots::{Endpoint, Leaving, Routes, UNSERVED};

use crate::config::Config;
use crate::group::record::record;

/// Whether keys are served: a majority decides, and all hash slots have an available primary, or
/// need not.
fn is_ok(state: &ControlState, config: &Config, is_cut_off: bool) -> bool {
    let is_failed = |id: NodeId| state.nodes.get(&id).is_none_or(|node| node.is_failed);
    let is_served = || {
        state.slots.count() == HASH_SLOTS
            && (state.shards.iter())
                .all(|(id, shard)| !is_failed(shard.primary) || state.slots.of(*id).is_empty())
    };
    !is_cut_off && (!config.cluster.requires_full_coverage || is_served())
}

pub(super) fn seen(
    state: &ControlState,
    own: NodeId,
    config: &Config,
    is_cut_off: bool,
) -> ClusterSeen {
    let others = state.nodes.iter().filter(|(id, _)| **id != own);
    let mut nodes: Vec<NodeSeen> = others
        .map(|(id, node)| node_seen(state, (*id, node), own))
        .collect();
    // The node knows itself, also while it joins or leaves a group, and knows what it was just
    // configured to announce, before the group has applied that.
    let mut myself = state.nodes.get(&own).cloned().unwrap_or_default();
    let mut announced = record(config, 0, true, None);
    if announced.host.is_empty() {
        announced.host = std::mem::take(&mut myself.record.host);
    }
    myself.record = announced;
    nodes.push(node_seen(state, (own, &myself), own));
    // This node comes first, because most readers look for it.
    nodes.sort_by_key(|node| !node.is_me);
    ClusterSeen {
        nodes,
        own: 0,
        is_ok: is_ok(state, config, is_cut_off),
        epoch: state.index,
        endpoint: config.cluster.endpoint,
        leader: own.to_string(),
        control_term: 0,
        fault_tolerance: 0,
        is_emptied: false,
        links: Vec::new(),
        messages: (0, 0),
        dropped_messages: 0,
    }
}

fn node_seen(state: &ControlState, (id, node): (NodeId, &Member), own: NodeId) -> NodeSeen {
    let record = &node.record;
    let shard_id = state.shard_of(id);
    let shard = shard_id.and_then(|shard| state.shards.get(&shard));
    let primary = shard
        .map(|shard| shard.primary)
        .filter(|primary| *primary != id);
    let is_primary = shard.is_some_and(|shard| shard.primary == id);
    NodeSeen {
        id: id.to_string(),
        shard_id: shard_name(shard_id.unwrap_or_default()),
        ip: record.host.clone(),
        hostname: record.hostname.clone(),
        name: record.name.clone(),
        zone: record.zone.clone(),
        port: record.client_port,
        tls_port: record.tls_port,
        bus_port: record.link_port,
        is_me: id == own,
        primary: primary.map(|primary| primary.to_string()),
        ranges: match shard_id {
            Some(shard) if is_primary => state.slots.of(shard),
            _ => Vec::new(),
        },
        epoch: shard.map_or(0, |shard| shard.epoch),
        is_failed: node.is_failed,
        declines: record.declines(),
        ..NodeSeen::default()
    }
}

/// Returns a shard's name of 40 digits, which is the same at all nodes.
fn shard_name(shard: ShardId) -> String {
    let mut bytes = [0; 20];
    let mut word = u64::from(shard.0);
    for byte in bytes.chunks_mut(8) {
        // Splitmix, so that the names do not look alike.
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = word;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let mixed = (mixed ^ (mixed >> 31)).to_be_bytes();
        byte.copy_from_slice(&mixed[..byte.len()]);
    }
    base::hex::text(&bytes)
}

pub(super) fn routes(
    state: &ControlState,
    own: NodeId,
    config: &Config,
    is_cut_off: bool,
) -> Routes {
    let mut endpoints = Vec::new();
    let mut owners = vec![UNSERVED; HASH_SLOTS];
    let (mut own_index, mut is_replica) = (UNSERVED - 1, false);
    for (index, (id, shard)) in (0..).zip(&state.shards) {
        endpoints.push(endpoint(state, shard.primary, config));
        if shard.members.contains_key(&own) {
            (own_index, is_replica) = (index, shard.primary != own);
        }
        for (first, last) in state.slots.of(*id) {
            owners[usize::from(first)..=usize::from(last)].fill(index);
        }
    }
    let cluster = &config.cluster;
    Routes {
        endpoints,
        owners,
        own: own_index,
        is_replica,
        is_down: !is_ok(state, config, is_cut_off),
        reads_when_down: cluster.reads_when_down,
        channels_when_down: cluster.channels_when_down,
        crosses_slots: cluster.crosses_slots,
        tls_port: config.tls.port,
        databases: u16::try_from(cluster.databases_count).unwrap_or(u16::MAX),
        // Set by the code that moves slots.
        leaving: Leaving::default(),
    }
}

fn endpoint(state: &ControlState, node: NodeId, config: &Config) -> Endpoint {
    let id = node.0;
    let Some(node) = state.nodes.get(&node) else {
        return Endpoint::default();
    };
    let record = &node.record;
    let host = match config.cluster.endpoint {
        EndpointKind::Ip => record.host.clone(),
        EndpointKind::Hostname if record.hostname.is_empty() => "?".to_owned(),
        EndpointKind::Hostname => record.hostname.clone(),
        EndpointKind::Unknown => String::new(),
    };
    Endpoint {
        host,
        port: record.client_port,
        tls_port: record.tls_port,
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_are_their_own() {
        let names: std::collections::BTreeSet<_> =
            (0..100).map(|id| shard_name(ShardId(id))).collect();
        assert_eq!(names.len(), 100);
        assert!(names.iter().all(|name| name.len() == 40));
    }
}
