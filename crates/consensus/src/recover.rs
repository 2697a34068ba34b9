//! Forced recovery: a group whose majority is lost for good continues with one of its nodes, by an
//! operator's order, while that node is stopped.
//!
//! The node's knowledge of the control log becomes a snapshot with this node as the only voter,
//! after all its entries and in a later term. Entries that other nodes agreed on and this node
//! never received are lost; it is impossible to know whether there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster::control_log::RaftId;
use cluster::{ControlState, Proposal};
use durability::disk::Disk;
use durability::whole_file;
use openraft::{EmptyNode, EntryPayload};

use crate::codec::{Members, StoredMembers};
use crate::disk_log::{self, BYTES_MAX};
use crate::machine::{Meta, SNAPSHOT, decode_snapshot, encode_snapshot};
use crate::{Leader, LogId, Vote};

/// The content of a node's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The state after all its entries: the other nodes may never have agreed on the last ones.
    pub state: ControlState,
    /// The index of its last entry.
    pub last_index: u64,
    /// The index up to which it knows entries to be committed.
    pub committed_index: u64,
    /// The voters.
    pub voters: BTreeSet<RaftId>,
    term: u64,
}

/// Reads what a stopped node knows of the control log.
///
/// # Errors
/// Those of the system; files that are damaged or of a newer version.
pub fn read_known(disk: &Arc<dyn Disk>, directory: &Path) -> io::Result<Known> {
    let invalid = |what: &dyn std::fmt::Display| {
        let what = format!("the control log cannot be read: {what}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let (mut state, mut last, mut voters) = (ControlState::default(), None, BTreeSet::new());
    let path = directory.join(SNAPSHOT);
    if let Some(bytes) = whole_file::read(&**disk, &path, BYTES_MAX)? {
        let (meta, whole) = decode_snapshot(&bytes).map_err(|what| invalid(&what))?;
        state = ControlState::decode(&whole).map_err(|what| invalid(&what))?;
        voters = meta.last_membership.membership().voter_ids().collect();
        last = meta.last_log_id;
    }
    let journal = disk_log::read(&**disk, directory)?;
    for entry in &journal.entries {
        if last.is_some_and(|last: LogId| entry.log_id.index <= last.index) {
            continue;
        }
        match &entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(data) => {
                let proposal = Proposal::decode(&data.0).map_err(|what| invalid(&what))?;
                let _applied = state.apply(entry.log_id.index, &proposal);
            }
            EntryPayload::Membership(members) => voters = members.voter_ids().collect(),
        }
        last = Some(entry.log_id);
    }
    let voted = journal.vote.map_or(0, |vote| vote.leader_id.term);
    Ok(Known {
        state,
        last_index: last.map_or(0, |last| last.index),
        committed_index: journal.committed.map_or(0, |committed| committed.index),
        voters,
        term: voted.max(last.map_or(0, |last| last.leader_id.term)),
    })
}

/// Restarts the group with this node as its only voter, and with this state. The caller keeps a
/// copy of the previous files elsewhere.
///
/// # Errors
/// Those of the system. A repeated call continues from what is there.
pub fn begin_anew(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    own: RaftId,
    known: &Known,
    mut state: ControlState,
) -> io::Result<()> {
    let leader = Leader {
        term: known.term + 1,
        node_id: own,
    };
    let last = LogId {
        leader_id: leader,
        index: known.last_index + 1,
    };
    state.index = last.index;
    let nodes = BTreeMap::from([(own, EmptyNode {})]);
    let members = Members::new(vec![BTreeSet::from([own])], nodes).map_err(io::Error::other)?;
    let meta = Meta {
        last_log_id: Some(last),
        last_membership: StoredMembers::new(Some(last), members),
    };
    let bytes = encode_snapshot(&meta, &state.encode());
    // The snapshot first: with the old journal it is just that journal's end, and the journal still
    // says the same.
    whole_file::replace(&**disk, directory, SNAPSHOT, &bytes)?;
    let vote = Vote {
        leader_id: leader,
        committed: false,
    };
    disk_log::write_empty(&**disk, directory, vote, last)
}

#[cfg(test)]
mod tests {
    use cluster::{Entry, NodeId, NodeRecord, RequestId};
    use durability::disk::SystemDisk;

    use super::*;

    #[test]
    fn what_was_begun_anew_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let own = NodeId([1; 20]);
        let mut state = ControlState::default();
        let join = Entry::Join {
            node: own,
            record: NodeRecord::default(),
        };
        let proposal = Proposal {
            request: RequestId([1; 16]),
            entry: join,
        };
        let _applied = state.apply(4, &proposal);
        let known = Known {
            state: state.clone(),
            last_index: 9,
            committed_index: 4,
            voters: BTreeSet::from([1, 2, 3]),
            term: 5,
        };
        state.incarnation = 1;
        for _ in 0..2 {
            begin_anew(&disk, directory.path(), 1, &known, state.clone()).expect("written");
        }
        let read = read_known(&disk, directory.path()).expect("read");
        assert_eq!((read.last_index, read.term), (10, 6));
        assert_eq!(read.voters, BTreeSet::from([1]));
        assert_eq!((read.state.incarnation, read.state.index), (1, 10));
        assert!(read.state.nodes.contains_key(&own));
    }
}
