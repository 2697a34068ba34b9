//! Raft's state machine: the control state, and its snapshots.
//!
//! ```text
//!   control/snapshot   record: last entry, members │ record: the state
//! ```
//!
//! The state is in memory, and peers get that one. A start reads the snapshot and applies the log
//! after it again, which gives the same state.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::bytes::{Malformed, Reader, Writer, record, take_record};
use cluster::{Applied, ControlState, Proposal};
use durability::disk::Disk;
use durability::whole_file;
use futures_util::{Stream, TryStreamExt as _};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{
    EmptyNode, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta,
};

use crate::codec::{StoredMembers, read_log_id, read_stored, write_log_id, write_stored};
use crate::disk_fault::{DiskFault, Written};
use crate::disk_log::BYTES_MAX;
use crate::{Leader, LogId, Types};

pub(crate) const SNAPSHOT: &str = "snapshot";

pub(crate) type Meta = SnapshotMeta<Leader, u64, EmptyNode>;
pub(crate) type Whole = Snapshot<Leader, u64, EmptyNode, Vec<u8>>;

/// The newest state that was applied here, for readers.
#[derive(Clone, Default)]
pub struct Published {
    newest: Arc<Mutex<Arc<ControlState>>>,
    changed: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Published {
    /// Creates it with a callback for changes of the state. It is called without locks held, and
    /// must not wait.
    #[must_use]
    pub fn with_hook(changed: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            changed: Some(changed),
            ..Self::default()
        }
    }

    /// Returns the state.
    #[must_use]
    pub fn get(&self) -> Arc<ControlState> {
        Arc::clone(&self.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, state: &ControlState) {
        let state = Arc::new(state.clone());
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = state;
        if let Some(changed) = &self.changed {
            changed();
        }
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published")
            .field("index", &self.get().index)
            .finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Machine {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    state: ControlState,
    last: Option<LogId>,
    members: StoredMembers,
    published: Published,
    fault: DiskFault,
}

impl Machine {
    /// Creates a machine whose snapshot lies in an existing directory, beside a log with that
    /// [fault](crate::DiskLog::fault).
    #[must_use]
    pub fn new(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        published: &Published,
        fault: &DiskFault,
    ) -> Self {
        Self {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            state: ControlState::default(),
            last: None,
            members: StoredMembers::default(),
            published: published.clone(),
            fault: fault.clone(),
        }
    }

    /// Returns the description of a snapshot of the state.
    fn meta(&self) -> Meta {
        Meta {
            last_log_id: self.last,
            last_membership: self.members.clone(),
        }
    }

    fn take_in(&mut self, meta: &Meta, bytes: &[u8]) -> io::Result<()> {
        self.state = ControlState::decode(bytes).map_err(damaged)?;
        self.last = meta.last_log_id;
        self.members = meta.last_membership.clone();
        self.published.set(&self.state);
        Ok(())
    }
}

fn damaged(what: Malformed) -> io::Error {
    let what = format!("the snapshot of the control log cannot be read: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Encodes a snapshot, for its file and for a peer.
pub(crate) fn encode_snapshot(meta: &Meta, state: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    write_log_id(&mut writer, meta.last_log_id);
    write_stored(&mut writer, &meta.last_membership);
    let mut bytes = record(&writer.0);
    bytes.extend(record(state));
    bytes
}

pub(crate) fn decode_snapshot(mut bytes: &[u8]) -> Result<(Meta, Vec<u8>), Malformed> {
    let mut reader = Reader(take_record(&mut bytes)?);
    let meta = Meta {
        last_log_id: read_log_id(&mut reader)?,
        last_membership: read_stored(&mut reader)?,
    };
    reader.end()?;
    let state = take_record(&mut bytes)?.to_vec();
    Reader(bytes).end()?;
    Ok((meta, state))
}

/// Writes the state as of the builder's creation.
#[derive(Debug)]
pub struct Builder {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    meta: Meta,
    bytes: Vec<u8>,
    fault: DiskFault,
}

impl<C: Types> RaftSnapshotBuilder<C> for Builder {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<Whole, io::Error> {
        let bytes = encode_snapshot(&self.meta, &self.bytes);
        let write = || whole_file::replace(&*self.disk, &self.directory, SNAPSHOT, &bytes);
        self.fault
            .until_written::<C, _>(Written::Snapshot, write)
            .await?;
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot: self.bytes.clone(),
        })
    }
}

impl<C: Types> RaftStateMachine<C> for Machine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembers), io::Error> {
        Ok((self.last, self.members.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<C>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let outcome = match &entry.payload {
                EntryPayload::Blank => None,
                // A server that does not know an entry's content stops applying: its state stays as
                // it is.
                EntryPayload::Normal(data) => {
                    let proposal = Proposal::decode(&data.0).map_err(unknown)?;
                    Some(self.state.apply(entry.log_id.index, &proposal))
                }
                EntryPayload::Membership(members) => {
                    self.members = StoredMembers::new(Some(entry.log_id), members.clone());
                    None::<Applied>
                }
            };
            self.last = Some(entry.log_id);
            self.published.set(&self.state);
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            disk: Arc::clone(&self.disk),
            directory: self.directory.clone(),
            meta: self.meta(),
            bytes: self.state.encode(),
            fault: self.fault.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Vec<u8>) -> Result<(), io::Error> {
        let bytes = encode_snapshot(meta, &snapshot);
        // An unreadable snapshot must not replace the present one.
        ControlState::decode(&snapshot).map_err(damaged)?;
        let write = || whole_file::replace(&*self.disk, &self.directory, SNAPSHOT, &bytes);
        self.fault
            .until_written::<C, _>(Written::Journal, write)
            .await?;
        self.take_in(meta, &snapshot)
    }

    /// Returns the state in memory, for a peer: Raft ends at the first error of its storage, and a
    /// file may be unreadable. Only a start, before anything is applied, reads the file.
    async fn get_current_snapshot(&mut self) -> Result<Option<Whole>, io::Error> {
        if self.last.is_some() {
            let (meta, snapshot) = (self.meta(), self.state.encode());
            return Ok(Some(Snapshot { meta, snapshot }));
        }
        let path = self.directory.join(SNAPSHOT);
        let Some(bytes) = whole_file::read(&*self.disk, &path, BYTES_MAX)? else {
            return Ok(None);
        };
        let (meta, snapshot) = decode_snapshot(&bytes).map_err(damaged)?;
        Ok(Some(Snapshot { meta, snapshot }))
    }
}

fn unknown(what: Malformed) -> io::Error {
    let what = format!("an entry of the control log cannot be applied: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use durability::simulated::{Fault, SimulatedDisk};
    use openraft::AsyncRuntime as _;
    use openraft_rt_sim::SimRuntime;

    use super::*;
    use crate::DiskLog;
    use crate::simulation::SimTypes;

    /// Regression: a leader whose disk failed while it read its snapshot for a follower took no
    /// part until it was restarted.
    #[test]
    fn a_peer_is_sent_what_this_node_has_though_its_disk_cannot_be_read() {
        let simulated = SimulatedDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
        let directory = Path::new("/control");
        // Also creates the directory.
        let fault = DiskLog::open(&disk, directory).unwrap().fault();
        let mut machine = Machine::new(&disk, directory, &Published::default(), &fault);
        let meta = Meta {
            last_log_id: Some(LogId {
                leader_id: Leader {
                    term: 1,
                    node_id: 1,
                },
                index: 7,
            }),
            last_membership: StoredMembers::default(),
        };
        let state = ControlState::default().encode();
        SimRuntime::with_seed(1).block_on(async {
            let installed =
                RaftStateMachine::<SimTypes>::install_snapshot(&mut machine, &meta, state.clone());
            installed.await.unwrap();
            simulated.fail(simulated.operations()..u64::MAX, Fault::Device);
            let sent = RaftStateMachine::<SimTypes>::get_current_snapshot(&mut machine);
            let sent = sent.await.unwrap().unwrap();
            assert_eq!((sent.meta, sent.snapshot), (meta, state));
        });
    }
}
