//! The log of Raft on disk: one journal of records, each with a sum, synced before anybody is told.
//!
//! ```text
//!   control/journal   head │ vote │ entry │ entry │ committed │ truncate │ entry …
//! ```
//!
//! All entries are in memory, too: what a snapshot covers is purged, and then the journal is written anew under another
//! name and takes the place of the old one. A control log sees less than a hundred entries a second, most of the time none.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::bytes::{Malformed, Reader, Writer, record, take_record};
use durability::disk::{Disk, DiskFile};
use durability::whole_file;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};

use crate::codec::{read_entry, read_log_id, read_vote, write_entry, write_log_id, write_vote};
use crate::{Entry, LogId, Types, Vote};

const JOURNAL: &str = "journal";
/// What a journal begins with, and its version.
const HEAD: &[u8] = b"IOLITE CONTROL JOURNAL 1\n";
/// No file of a control log is read that is longer.
pub(crate) const BYTES_MAX: u64 = 1 << 30;
/// No single write is longer: more than that after a damaged record is damage.
const TORN_BYTES_MAX: usize = 64 << 20;

/// See the module. Copies are of the same log.
#[derive(Clone, Debug)]
pub struct DiskLog(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    file: Box<dyn DiskFile>,
    end: u64,
    /// Something failed: nothing is promised any more.
    is_broken: bool,
    kept: Kept,
}

/// What the journal says.
#[derive(Debug, Default)]
struct Kept {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

/// One record.
enum Change<'e> {
    Vote(Vote),
    Committed(Option<LogId>),
    Entry(&'e Entry),
    /// Entries from this index on are gone.
    Truncate(u64),
    /// Entries up to this one are.
    Purge(LogId),
}

impl Change<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Change::Vote(vote) => write_vote(writer.u8(1), *vote),
            Change::Committed(id) => write_log_id(writer.u8(2), *id),
            Change::Entry(entry) => write_entry(writer.u8(3), entry),
            Change::Truncate(from) => drop(writer.u8(4).u64(*from)),
            Change::Purge(id) => write_log_id(writer.u8(5), Some(*id)),
        }
        writer.0
    }
}

/// Changes as one record: what is synced at once is there whole or not at all, so after a torn record there is none.
fn batch(changes: &[Change<'_>]) -> Vec<u8> {
    let mut writer = Writer::default();
    for change in changes {
        let bytes = change.encode();
        writer.count(bytes.len()).raw(&bytes);
    }
    record(&writer.0)
}

impl Kept {
    fn read_batch(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader(body);
        while !reader.0.is_empty() {
            let length = reader.count()?;
            self.read(reader.raw(length)?)?;
        }
        Ok(())
    }

    fn read(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader(body);
        match reader.u8()? {
            1 => self.vote = Some(read_vote(&mut reader)?),
            2 => self.committed = read_log_id(&mut reader)?,
            3 => {
                let entry = read_entry(&mut reader)?;
                let next = self.next_index();
                if entry.log_id.index != next && next != 0 {
                    return Err(Malformed::Value);
                }
                self.entries.insert(entry.log_id.index, entry);
            }
            4 => {
                let from = reader.u64()?;
                self.entries.retain(|index, _| *index < from);
            }
            5 => {
                let id = read_log_id(&mut reader)?.ok_or(Malformed::Value)?;
                self.entries.retain(|index, _| *index > id.index);
                self.purged = Some(id);
            }
            kind => return Err(Malformed::Kind(kind)),
        }
        reader.end()
    }

    fn last(&self) -> Option<LogId> {
        let last = self.entries.last_key_value();
        last.map(|(_, entry)| entry.log_id).or(self.purged)
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    fn encode(&self) -> Vec<u8> {
        let mut changes: Vec<Change<'_>> = self.vote.map(Change::Vote).into_iter().collect();
        changes.extend(self.purged.map(Change::Purge));
        changes.extend(self.entries.values().map(Change::Entry));
        changes.push(Change::Committed(self.committed));
        let mut bytes = HEAD.to_vec();
        bytes.extend(batch(&changes));
        bytes
    }
}

impl DiskLog {
    /// Opens the journal in a directory, or makes both.
    ///
    /// # Errors
    /// Those of the system; and where the journal is damaged before its end, or of another version: then this node does not
    /// vote with it, and joins as a new one.
    pub fn open(disk: &Arc<dyn Disk>, directory: &Path) -> io::Result<Self> {
        let path = directory.join(JOURNAL);
        whole_file::make_directory(&**disk, directory)?;
        let mut kept = Kept::default();
        let (file, end) = match disk.open_for_writing(&path) {
            Ok(file) => {
                let end = read_journal(&*file, &path, &mut kept)?;
                if end < file.size()? {
                    file.set_len(end)?;
                    file.sync()?;
                }
                (file, end)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let bytes = kept.encode();
                let file = whole_file::replace(&**disk, directory, JOURNAL, &bytes)?;
                (file, bytes.len() as u64)
            }
            Err(error) => return Err(error),
        };
        Ok(Self(Arc::new(Mutex::new(Inner {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            file,
            end,
            is_broken: false,
            kept,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a journal says that nobody has open.
pub(crate) struct Journal {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    /// In their order.
    pub(crate) entries: Vec<Entry>,
}

/// Reads a journal that nobody has open; an empty one where there is none.
///
/// # Errors
/// Those of the system; damage.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> io::Result<Journal> {
    let path = directory.join(JOURNAL);
    let mut kept = Kept::default();
    match disk.open_for_writing(&path) {
        Ok(file) => drop(read_journal(&*file, &path, &mut kept)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(Journal {
        vote: kept.vote,
        committed: kept.committed,
        entries: kept.entries.into_values().collect(),
    })
}

/// Writes a journal without entries: all up to there are in a snapshot.
///
/// # Errors
/// Those of the system; what was there is there still.
pub(crate) fn write_empty(
    disk: &dyn Disk,
    directory: &Path,
    vote: Vote,
    purged: LogId,
) -> io::Result<()> {
    let kept = Kept {
        vote: Some(vote),
        committed: Some(purged),
        purged: Some(purged),
        entries: BTreeMap::new(),
    };
    whole_file::replace(disk, directory, JOURNAL, &kept.encode()).map(drop)
}

/// Removes what is left of a former membership: who joins anew has another number, and another journal.
///
/// # Errors
/// Those of the system.
pub fn forget(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    for name in [JOURNAL, crate::machine::SNAPSHOT] {
        whole_file::remove(disk, &directory.join(name))?;
    }
    disk.sync_directory(directory)
}

/// Reads what is there; where it ends. What a crash tore off the end is passed over.
fn read_journal(file: &dyn DiskFile, path: &Path, kept: &mut Kept) -> io::Result<u64> {
    let bytes = whole_file::read_all(file, BYTES_MAX)?;
    let damaged = |at: usize, what: &dyn std::fmt::Display| {
        let path = path.display();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the control journal {path} is damaged at offset {at}: {what}"),
        )
    };
    let Some(mut rest) = bytes.strip_prefix(HEAD) else {
        return Err(damaged(0, &"it does not begin as one"));
    };
    loop {
        let at = bytes.len() - rest.len();
        match take_record(&mut rest) {
            Ok(body) => kept.read_batch(body).map_err(|what| damaged(at, &what))?,
            // The first record was written with its file, whole.
            Err(what) if at == HEAD.len() || !is_torn(rest) => return Err(damaged(at, &what)),
            Err(_) => return Ok(at as u64),
        }
    }
}

/// Whether this is what was being written when the power went: then there is no whole record after it.
fn is_torn(rest: &[u8]) -> bool {
    let has_record = |at: usize| {
        let mut from = &rest[at..];
        take_record(&mut from).is_ok_and(|body| !body.is_empty())
    };
    rest.len() <= TORN_BYTES_MAX && !(1..rest.len()).any(has_record)
}

impl Inner {
    /// Appends records; durable when this returns, if that is asked for.
    fn write(&mut self, changes: &[Change<'_>], syncs: bool) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("the control journal failed before"));
        }
        let bytes = batch(changes);
        let written = self.file.write_at(&bytes, self.end);
        let written = written.and_then(|()| if syncs { self.file.sync() } else { Ok(()) });
        match written {
            Ok(()) => self.end += bytes.len() as u64,
            // Nobody knows what of it is there.
            Err(_) => self.is_broken = true,
        }
        written
    }
}

impl<C: Types> RaftLogReader<C> for DiskLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let inner = self.lock();
        let entries = inner.kept.entries.range(range);
        Ok(entries.map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.lock().kept.vote)
    }
}

impl<C: Types> RaftLogStorage<C> for DiskLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, io::Error> {
        let inner = self.lock();
        Ok(LogState {
            last_purged_log_id: inner.kept.purged,
            last_log_id: inner.kept.last(),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut inner = self.lock();
        inner.write(&[Change::Vote(*vote)], true)?;
        inner.kept.vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        // A hint for the next start: it goes with the next entries.
        self.lock().kept.committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let inner = self.lock();
        // It may name what a power cut took.
        let last = inner.kept.last();
        Ok(inner.kept.committed.min(last))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let written = {
            let mut inner = self.lock();
            let committed = inner.kept.committed;
            let mut changes: Vec<Change<'_>> = entries.iter().map(Change::Entry).collect();
            changes.push(Change::Committed(committed));
            let written = inner.write(&changes, true);
            if written.is_ok() {
                let new = entries.into_iter().map(|entry| (entry.log_id.index, entry));
                inner.kept.entries.extend(new);
            }
            written
        };
        match written {
            Ok(()) => callback.io_completed(Ok(())),
            Err(error) => {
                callback.io_completed(Err(io::Error::new(error.kind(), error.to_string())));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index + 1);
        let mut inner = self.lock();
        inner.write(&[Change::Truncate(from)], true)?;
        inner.kept.entries.retain(|index, _| *index < from);
        Ok(())
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        let mut inner = self.lock();
        inner.kept.entries.retain(|index, _| *index > id.index);
        inner.kept.purged = Some(id);
        let bytes = inner.kept.encode();
        let written = whole_file::replace(&*inner.disk, &inner.directory, JOURNAL, &bytes);
        match written {
            Ok(file) => (inner.file, inner.end) = (file, bytes.len() as u64),
            Err(error) => {
                inner.is_broken = true;
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use durability::disk::Disk;
    use durability::simulated::SimulatedDisk;
    use openraft::EntryPayload;

    use super::*;
    use crate::{Data, Leader};

    fn entry(index: u64) -> Entry {
        let leader_id = Leader {
            term: 1,
            node_id: 1,
        };
        let log_id = LogId { leader_id, index };
        let payload = EntryPayload::Normal(Data(vec![7; usize::try_from(index).unwrap()]));
        Entry { log_id, payload }
    }

    fn open(disk: &SimulatedDisk) -> io::Result<DiskLog> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        DiskLog::open(&disk, Path::new("/control"))
    }

    fn write(log: &DiskLog, index: u64) {
        let entry = entry(index);
        log.lock().write(&[Change::Entry(&entry)], true).unwrap();
        log.lock().kept.entries.insert(index, entry);
    }

    fn indexes(log: &DiskLog) -> Vec<u64> {
        log.lock().kept.entries.keys().copied().collect()
    }

    #[test]
    fn what_was_synced_outlives_a_power_cut_and_nothing_else_counts() {
        for seed in 0..50 {
            let disk = SimulatedDisk::new(seed);
            let log = open(&disk).unwrap();
            for index in 0..5 {
                write(&log, index);
            }
            let unsynced = entry(5);
            log.lock()
                .write(&[Change::Entry(&unsynced)], false)
                .unwrap();
            let after = open(&disk.crash(seed)).unwrap();
            let found = indexes(&after);
            assert!(
                found == [0, 1, 2, 3, 4] || found == [0, 1, 2, 3, 4, 5],
                "{seed}: {found:?}"
            );
            write(&after, found.len() as u64);
        }
    }

    #[test]
    fn damage_before_the_end_is_refused_with_its_place() {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk).unwrap();
        for index in 0..5 {
            write(&log, index);
        }
        let file = disk
            .open_for_writing(Path::new("/control/journal"))
            .unwrap();
        file.write_at(&[0xff], HEAD.len() as u64 + 40).unwrap();
        let error = open(&disk).unwrap_err().to_string();
        assert!(error.contains("damaged at offset"), "{error}");
        file.write_at(b"X", 0).unwrap();
        assert!(open(&disk).is_err());
    }

    #[test]
    fn a_truncated_log_stays_truncated() {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk).unwrap();
        for index in 0..5 {
            write(&log, index);
        }
        log.lock().write(&[Change::Truncate(2)], true).unwrap();
        assert_eq!(indexes(&open(&disk).unwrap()), [0, 1]);
    }
}
