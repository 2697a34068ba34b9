//! The encoded state: a snapshot of the control log.
//!
//! ```text
//!   version u8 │ index │ feature level │ incarnation │ nodes │ shards │ documents │ secret │ requests │ slots
//! ```

use std::collections::BTreeMap;

use super::{
    Applied, ControlState, CopyKind, DocumentKind, Drain, LogEnd, Node, NodeId, NodeRecord,
    REQUESTS_MAX, Shard, ShardId, Slots, TEXT_BYTES_MAX, Versioned,
};
use crate::bytes::{Malformed, Reader, Writer};
use crate::entry::RequestId;

/// The version of snapshots that this server writes, and the highest that it can read.
const VERSION: u8 = 1;

impl NodeRecord {
    pub(crate) fn is_within_limits(&self) -> bool {
        [&self.name, &self.host, &self.zone, &self.hostname]
            .iter()
            .all(|text| text.len() <= TEXT_BYTES_MAX)
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.string(self.name.as_bytes());
        writer.string(self.host.as_bytes());
        writer.u16(self.client_port).u16(self.link_port);
        writer.string(self.zone.as_bytes()).u8(self.roles);
        writer.u64(self.start_count).u16(self.feature_level);
        writer.string(self.hostname.as_bytes()).u16(self.tls_port);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            name: reader.text()?,
            host: reader.text()?,
            client_port: reader.u16()?,
            link_port: reader.u16()?,
            zone: reader.text()?,
            roles: reader.u8()?,
            start_count: reader.u64()?,
            feature_level: reader.u16()?,
            hostname: reader.text()?,
            tls_port: reader.u16()?,
        })
    }
}

impl ControlState {
    /// Encodes the state.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(VERSION).u64(self.index);
        writer.u16(self.feature_level).u64(self.incarnation);
        writer.count(self.nodes.len());
        for (id, node) in &self.nodes {
            writer.raw(&id.0).u64(node.raft_id);
            // One byte: the lowest bit says whether the node failed, the bits above hold its drain
            // state.
            let flags = u8::from(node.is_failed) | (node.drain as u8) << 1;
            node.record.encode(writer.u8(flags));
        }
        writer.count(self.shards.len());
        for (id, shard) in &self.shards {
            encode_shard(writer.u32(id.0), shard);
        }
        writer.count(self.documents.len());
        for ((kind, name), document) in &self.documents {
            writer.u8(*kind as u8).string(name);
            writer.u64(document.version).string(&document.body);
        }
        writer.u64(self.secret.version).string(&self.secret.body);
        writer.count(self.requests.len());
        for (request, applied) in &self.requests {
            writer.raw(&request.0).u8(*applied as u8);
        }
        self.slots.encode(&mut writer);
        writer.0
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// If the bytes are malformed or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::versioned(bytes, VERSION)?;
        let mut state = Self {
            index: reader.u64()?,
            feature_level: reader.u16()?,
            incarnation: reader.u64()?,
            ..Self::default()
        };
        for _ in 0..reader.count()? {
            let id = NodeId(reader.array()?);
            let (raft_id, flags) = (reader.u64()?, reader.u8()?);
            let node = Node {
                raft_id,
                is_failed: flags & 1 != 0,
                drain: Drain::of(flags >> 1)?,
                record: NodeRecord::decode(&mut reader)?,
            };
            state.nodes.insert(id, node);
        }
        for _ in 0..reader.count()? {
            let id = ShardId(reader.u32()?);
            state.shards.insert(id, decode_shard(&mut reader)?);
        }
        for _ in 0..reader.count()? {
            let kind = DocumentKind::of(reader.u8()?)?;
            let name = reader.string()?.to_vec();
            state
                .documents
                .insert((kind, name), versioned(&mut reader)?);
        }
        state.secret = versioned(&mut reader)?;
        let requests = reader.count()?;
        if requests > REQUESTS_MAX {
            return Err(Malformed::Length);
        }
        for _ in 0..requests {
            let request = RequestId(reader.array()?);
            let applied = Applied::of(reader.u8()?)?;
            state.requests.push_back((request, applied));
        }
        state.slots = Slots::decode(&mut reader)?;
        reader.end()?;
        Ok(state)
    }
}

fn versioned(reader: &mut Reader<'_>) -> Result<Versioned, Malformed> {
    Ok(Versioned {
        version: reader.u64()?,
        body: reader.string()?.to_vec(),
    })
}

fn encode_shard(writer: &mut Writer, shard: &Shard) {
    writer
        .u64(shard.term)
        .u64(shard.epoch)
        .raw(&shard.primary.0);
    shard.promised.encode(writer);
    writer.u8(u8::from(shard.is_quorum));
    encode_members(writer, &shard.members);
    match &shard.old_members {
        Some(members) => encode_members(writer.u8(1), members),
        None => drop(writer.u8(0)),
    }
}

fn decode_shard(reader: &mut Reader<'_>) -> Result<Shard, Malformed> {
    Ok(Shard {
        term: reader.u64()?,
        epoch: reader.u64()?,
        primary: NodeId(reader.array()?),
        promised: LogEnd::decode(reader)?,
        is_quorum: reader.bool()?,
        members: decode_members(reader)?,
        old_members: match reader.bool()? {
            true => Some(decode_members(reader)?),
            false => None,
        },
    })
}

fn encode_members(writer: &mut Writer, members: &BTreeMap<NodeId, CopyKind>) {
    writer.count(members.len());
    for (node, kind) in members {
        writer.raw(&node.0).u8(*kind as u8);
    }
}

fn decode_members(reader: &mut Reader<'_>) -> Result<BTreeMap<NodeId, CopyKind>, Malformed> {
    let mut members = BTreeMap::new();
    for _ in 0..reader.count()? {
        let node = NodeId(reader.array()?);
        members.insert(node, CopyKind::of(reader.u8()?)?);
    }
    Ok(members)
}
