//! The control log of a node by itself: a file with the state, rewritten for each entry.
//!
//! ```text
//!   <dir>/iolite-data/cluster/node    "IOLITECL" │ version u8 │ name 20 bytes │ starts u64 │ control state │ CRC-64 u64
//! ```
//!
//! An entry is applied when the file that contains it is durable. Its effect is not visible before
//! that.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::crc::crc64;
use cluster::control_log::RaftId;
use cluster::{Applied, ControlLog, ControlState, Membership, NodeId, Proposal, Unavailable};
use durability::disk::Disk;
use durability::whole_file;

use crate::group::unique;

const MAGIC: &[u8; 8] = b"IOLITECL";
const VERSION: u8 = 1;
const NAME: &str = "node";
/// Maximum length of a file.
const BYTES_MAX: u64 = 256 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct LoneLog {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    kept: Mutex<Kept>,
}

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    own: NodeId,
    start_count: u64,
    state: Arc<ControlState>,
}

impl LoneLog {
    /// Reads the state of a data directory, or begins one. Counts as a start of the node.
    ///
    /// # Errors
    /// Errors of the system, and a file that is not as it was written.
    pub(super) fn open(disk: Arc<dyn Disk>, data: &Path) -> io::Result<Self> {
        let directory = data.join("cluster");
        whole_file::make_directory(&*disk, data)?;
        whole_file::make_directory(&*disk, &directory)?;
        let mut kept = match read(&*disk, &directory.join(NAME))? {
            Some(kept) => kept,
            None => Kept {
                own: unique::node_id(),
                ..Kept::default()
            },
        };
        kept.start_count += 1;
        write(&*disk, &directory, &kept)?;
        Ok(Self {
            disk,
            directory,
            kept: Mutex::new(kept),
        })
    }

    /// This node's name.
    pub(super) fn own(&self) -> NodeId {
        self.lock().own
    }

    /// Number of starts of this node.
    pub(super) fn start_count(&self) -> u64 {
        self.lock().start_count
    }

    /// Forgets everything, and takes a new name if `is_new_name`.
    pub(super) fn reset(&self, is_new_name: bool) -> io::Result<()> {
        let mut kept = self.lock();
        let new = Kept {
            own: if is_new_name {
                unique::node_id()
            } else {
                kept.own
            },
            start_count: kept.start_count,
            state: Arc::default(),
        };
        write(&*self.disk, &self.directory, &new)?;
        *kept = new;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlLog for LoneLog {
    fn propose(&self, proposal: &Proposal) -> Result<Applied, Unavailable> {
        let mut kept = self.lock();
        let mut state = (*kept.state).clone();
        let applied = state.apply(state.index + 1, proposal);
        let new = Kept {
            state: Arc::new(state),
            ..*kept
        };
        write(&*self.disk, &self.directory, &new).map_err(|_| Unavailable::Ended)?;
        *kept = new;
        Ok(applied)
    }

    fn read_barrier(&self) -> Result<Arc<ControlState>, Unavailable> {
        Ok(self.watch())
    }

    fn watch(&self) -> Arc<ControlState> {
        Arc::clone(&self.lock().state)
    }

    fn membership(&self) -> Membership {
        let kept = self.lock();
        let own = kept.state.nodes.get(&kept.own);
        Membership {
            voters: own.map(|node| node.raft_id).into_iter().collect(),
            ..Membership::default()
        }
    }

    fn change_voters(&self, _voters: &BTreeSet<RaftId>) -> Result<(), Unavailable> {
        Err(Unavailable::Ended)
    }

    fn has_quorum_lease(&self) -> bool {
        true
    }
}

fn encode(kept: &Kept) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes.extend_from_slice(&kept.own.0);
    bytes.extend_from_slice(&kept.start_count.to_le_bytes());
    bytes.extend_from_slice(&kept.state.encode());
    let sum = crc64(0, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Kept> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if crc64(0, body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let rest = body.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
    let (own, rest) = rest.split_first_chunk::<20>()?;
    let (start_count, rest) = rest.split_first_chunk::<8>()?;
    Some(Kept {
        own: NodeId(*own),
        start_count: u64::from_le_bytes(*start_count),
        state: Arc::new(ControlState::decode(rest).ok()?),
    })
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Kept>> {
    let Some(bytes) = whole_file::read(disk, path, BYTES_MAX)? else {
        return Ok(None);
    };
    decode(&bytes).map(Some).ok_or_else(|| {
        let path = path.display();
        let what = format!("{path} is damaged: without it this node is another one");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Writes the whole file; it is durable when this returns. On failure the former file is unchanged.
fn write(disk: &dyn Disk, directory: &Path, kept: &Kept) -> io::Result<()> {
    whole_file::replace(disk, directory, NAME, &encode(kept)).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use cluster::{Entry, NodeRecord, RequestId};
    use durability::simulated::SimulatedDisk;

    use super::*;

    #[test]
    fn what_was_applied_is_there_after_a_crash() {
        let disk = Arc::new(SimulatedDisk::new(7));
        let data = Path::new("/data");
        let log = LoneLog::open(Arc::<SimulatedDisk>::clone(&disk), data).unwrap();
        let own = log.own();
        let proposal = Proposal {
            request: RequestId([1; 16]),
            entry: Entry::Join {
                node: own,
                record: NodeRecord::default(),
            },
        };
        assert_eq!(log.propose(&proposal), Ok(Applied::Done));
        assert_eq!(log.start_count(), 1);
        let disk = Arc::new(disk.crash(9));
        let log = LoneLog::open(disk, data).unwrap();
        assert_eq!((log.own(), log.start_count()), (own, 2));
        assert!(log.watch().nodes.contains_key(&own));
        log.reset(true).unwrap();
        assert!(log.own() != own && log.watch().nodes.is_empty());
    }

    #[test]
    fn a_file_comes_back_whole_or_not_at_all() {
        let kept = Kept {
            own: NodeId([3; 20]),
            start_count: 9,
            ..Kept::default()
        };
        let bytes = encode(&kept);
        assert_eq!(decode(&bytes), Some(kept));
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at]), None);
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(decode(&other), None);
        }
    }
}
