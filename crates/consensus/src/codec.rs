//! Encoding of what Raft stores and sends.

use std::collections::{BTreeMap, BTreeSet};

use cluster::bytes::{Malformed, Reader, Writer};
use openraft::{EmptyNode, EntryPayload, Membership, StoredMembership};

use crate::{Data, Entry, Leader, LogId, Vote};

/// Upper bound of a group's members.
const MEMBERS_MAX: usize = 65_536;

pub(crate) type Members = Membership<u64, EmptyNode>;
pub(crate) type StoredMembers = StoredMembership<Leader, u64, EmptyNode>;

pub(crate) fn write_leader(writer: &mut Writer, leader: Leader) {
    writer.u64(leader.term).u64(leader.node_id);
}

pub(crate) fn read_leader(reader: &mut Reader<'_>) -> Result<Leader, Malformed> {
    Ok(Leader {
        term: reader.u64()?,
        node_id: reader.u64()?,
    })
}

pub(crate) fn write_vote(writer: &mut Writer, vote: Vote) {
    write_leader(writer, vote.leader_id);
    writer.u8(u8::from(vote.committed));
}

pub(crate) fn read_vote(reader: &mut Reader<'_>) -> Result<Vote, Malformed> {
    Ok(Vote {
        leader_id: read_leader(reader)?,
        committed: reader.bool()?,
    })
}

pub(crate) fn write_log_id(writer: &mut Writer, id: Option<LogId>) {
    match id {
        None => drop(writer.u8(0)),
        Some(id) => {
            write_leader(writer.u8(1), id.leader_id);
            writer.u64(id.index);
        }
    }
}

pub(crate) fn read_log_id(reader: &mut Reader<'_>) -> Result<Option<LogId>, Malformed> {
    Ok(match reader.bool()? {
        false => None,
        true => Some(LogId {
            leader_id: read_leader(reader)?,
            index: reader.u64()?,
        }),
    })
}

pub(crate) fn write_entry(writer: &mut Writer, entry: &Entry) {
    write_log_id(writer, Some(entry.log_id));
    match &entry.payload {
        EntryPayload::Blank => drop(writer.u8(0)),
        EntryPayload::Normal(data) => drop(writer.u8(1).count(data.0.len()).raw(&data.0)),
        EntryPayload::Membership(members) => write_members(writer.u8(2), members),
    }
}

pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let log_id = read_log_id(reader)?.ok_or(Malformed::Value)?;
    let payload = match reader.u8()? {
        0 => EntryPayload::Blank,
        1 => {
            let length = reader.count()?;
            EntryPayload::Normal(Data(reader.raw(length)?.to_vec()))
        }
        2 => EntryPayload::Membership(read_members(reader)?),
        kind => return Err(Malformed::Kind(kind)),
    };
    Ok(Entry { log_id, payload })
}

fn write_members(writer: &mut Writer, members: &Members) {
    let sets = members.get_joint_config();
    writer.count(sets.len());
    for set in sets {
        writer.count(set.len());
        for id in set {
            writer.u64(*id);
        }
    }
    let nodes: Vec<u64> = members.nodes().map(|(id, _)| *id).collect();
    writer.count(nodes.len());
    for id in nodes {
        writer.u64(id);
    }
}

fn read_members(reader: &mut Reader<'_>) -> Result<Members, Malformed> {
    let ids = |reader: &mut Reader<'_>| {
        let count = reader.count()?;
        if count > MEMBERS_MAX {
            return Err(Malformed::Length);
        }
        (0..count)
            .map(|_| reader.u64())
            .collect::<Result<BTreeSet<u64>, _>>()
    };
    let sets = reader.count()?;
    // One set, or two during a change; none before the group began.
    if sets > 2 {
        return Err(Malformed::Value);
    }
    let sets = (0..sets)
        .map(|_| ids(reader))
        .collect::<Result<Vec<_>, _>>()?;
    let nodes: BTreeMap<u64, EmptyNode> = ids(reader)?
        .into_iter()
        .map(|id| (id, EmptyNode {}))
        .collect();
    if sets.is_empty() && nodes.is_empty() {
        return Ok(Members::default());
    }
    Members::new(sets, nodes).map_err(|_| Malformed::Value)
}

pub(crate) fn write_stored(writer: &mut Writer, stored: &StoredMembers) {
    write_log_id(writer, *stored.log_id());
    write_members(writer, stored.membership());
}

pub(crate) fn read_stored(reader: &mut Reader<'_>) -> Result<StoredMembers, Malformed> {
    let id = read_log_id(reader)?;
    Ok(StoredMembers::new(id, read_members(reader)?))
}
