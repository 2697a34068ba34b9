//! Raft's log on disk: one journal of records, each with a checksum, synced before any reply.
//!
//! ```text
//!   control/journal   head │ vote │ entry │ entry │ committed │ truncate │ entry …
//! ```
//!
//! All entries are also in memory. Entries that a snapshot covers are purged: the journal is then
//! rewritten under another name and replaces the old one. A control log gets less than a hundred
//! entries a second, most of the time none.
//!
//! The journal is also rewritten after a failed write or sync, and at a start: the system may show
//! unsynced data of a file that is not on disk, and never sync it. What was acknowledged is in
//! memory, and is written to a file that is synced completely.

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
use crate::disk_fault::{DiskFault, Written};
use crate::planted::{Bug, is_on};
use crate::{Entry, LogId, Types, Vote};

const JOURNAL: &str = "journal";
/// The first bytes of a journal, with its version.
const HEAD: &[u8] = b"IOLITE CONTROL JOURNAL 1\n";
/// Maximum length of a control log's file; longer files are not read.
pub(crate) const BYTES_MAX: u64 = 1 << 30;
/// Maximum length of a single write: more than that after a damaged record is damage.
const TORN_BYTES_MAX: usize = 64 << 20;

/// See the module. Clones refer to the same log.
#[derive(Clone, Debug)]
pub struct DiskLog {
    inner: Arc<Mutex<Inner>>,
    fault: DiskFault,
}

#[derive(Debug)]
struct Inner {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    file: Box<dyn DiskFile>,
    end: u64,
    /// Whether a write failed: the file's content is unknown, and it is not written to any more.
    is_broken: bool,
    kept: Kept,
}

/// The content of the journal.
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
    /// Removes the entries from this index on.
    Truncate(u64),
    /// Removes the entries up to this one.
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

/// Encodes changes as one record: all that is synced at once is present completely or not at all,
/// so nothing follows a torn record.
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
    /// Opens the journal in a directory, or creates both.
    ///
    /// # Errors
    /// Those of the system; and if the journal is damaged before its end, or of another version:
    /// then this node does not vote with it, and joins as a new one.
    pub fn open(disk: &Arc<dyn Disk>, directory: &Path) -> io::Result<Self> {
        whole_file::make_directory(&**disk, directory)?;
        let kept = read_kept(&**disk, directory)?;
        let bytes = kept.encode();
        let file = whole_file::replace(&**disk, directory, JOURNAL, &bytes).map_err(|error| {
            let path = directory.join(JOURNAL);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let inner = Inner {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            file,
            end: bytes.len() as u64,
            is_broken: false,
            kept,
        };
        Ok(Self {
            inner: Arc::new(Mutex::new(inner)),
            fault: DiskFault::default(),
        })
    }

    /// Returns the fault of its files, for sharing.
    #[must_use]
    pub fn fault(&self) -> DiskFault {
        self.fault.clone()
    }

    /// Writes records, with as many attempts as needed. They are durable afterwards.
    async fn persist<C: Types>(&self, changes: &[Change<'_>]) -> io::Result<()> {
        let is_vote = matches!(changes, [Change::Vote(_)]);
        let is_left_out = is_on(Bug::NotSynced) || (is_vote && is_on(Bug::VoteNotSynced));
        let syncs = !is_left_out;
        let write = || self.lock().write(changes, syncs);
        self.fault
            .until_written::<C, _>(Written::Journal, write)
            .await
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content of a journal that is not open.
pub(crate) struct Journal {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    /// The entries in order.
    pub(crate) entries: Vec<Entry>,
}

/// Reads a journal that is not open; an empty one if there is none.
///
/// # Errors
/// Those of the system; damage.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> io::Result<Journal> {
    let kept = read_kept(disk, directory)?;
    Ok(Journal {
        vote: kept.vote,
        committed: kept.committed,
        entries: kept.entries.into_values().collect(),
    })
}

/// Writes a journal without entries, because a snapshot has all of them.
///
/// # Errors
/// Those of the system; the previous journal is unchanged then.
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

/// Removes the files of a former membership: a node that joins anew has another id and another
/// journal.
///
/// # Errors
/// Those of the system.
pub fn forget(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    for name in [JOURNAL, crate::machine::SNAPSHOT] {
        whole_file::remove(disk, &directory.join(name))?;
    }
    disk.sync_directory(directory)
}

/// Returns the content of a directory's journal; empty if there is none.
fn read_kept(disk: &dyn Disk, directory: &Path) -> io::Result<Kept> {
    let path = directory.join(JOURNAL);
    let mut kept = Kept::default();
    match disk.open_for_writing(&path) {
        Ok(file) => read_journal(&*file, &path, &mut kept)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(kept)
}

/// Reads a journal. Skips a record that a crash tore off the end.
fn read_journal(file: &dyn DiskFile, path: &Path, kept: &mut Kept) -> io::Result<()> {
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
            // The first record was written completely with its file.
            Err(what) if at == HEAD.len() || !is_torn(rest) => return Err(damaged(at, &what)),
            Err(_) => return Ok(()),
        }
    }
}

/// Whether these bytes were being written when the power failed: then no complete record follows.
fn is_torn(rest: &[u8]) -> bool {
    let has_record = |at: usize| {
        let mut from = &rest[at..];
        take_record(&mut from).is_ok_and(|body| !body.is_empty())
    };
    rest.len() <= TORN_BYTES_MAX && !(1..rest.len()).any(has_record)
}

impl Inner {
    /// Appends records. They are durable afterwards if `syncs` is set.
    fn write(&mut self, changes: &[Change<'_>], syncs: bool) -> io::Result<()> {
        if self.is_broken {
            self.rewrite()?;
        }
        let bytes = batch(changes);
        let written = self.file.write_at(&bytes, self.end);
        let written = written.and_then(|()| if syncs { self.file.sync() } else { Ok(()) });
        match written {
            Ok(()) => self.end += bytes.len() as u64,
            // It is unknown how much of it was written.
            Err(_) => self.is_broken = true,
        }
        written
    }

    /// Replaces the journal by a file with only the valid content.
    fn rewrite(&mut self) -> io::Result<()> {
        let bytes = self.kept.encode();
        // When this fails, the file may already have the name.
        self.is_broken = true;
        let file = whole_file::replace(&*self.disk, &self.directory, JOURNAL, &bytes)?;
        (self.file, self.end) = (file, bytes.len() as u64);
        self.is_broken = false;
        Ok(())
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
        self.persist::<C>(&[Change::Vote(*vote)]).await?;
        self.lock().kept.vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        // A hint for the next start: written with the next entries.
        self.lock().kept.committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let inner = self.lock();
        // It may name an entry that a power cut removed.
        let last = inner.kept.last();
        match is_on(Bug::AppliedBeforeCommit) {
            true => Ok(last),
            false => Ok(inner.kept.committed.min(last)),
        }
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut changes: Vec<Change<'_>> = entries.iter().map(Change::Entry).collect();
        changes.push(Change::Committed(self.lock().kept.committed));
        let written = self.persist::<C>(&changes).await;
        drop(changes);
        if let Err(error) = written {
            callback.io_completed(Err(io::Error::new(error.kind(), error.to_string())));
            return Err(error);
        }
        let new = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        self.lock().kept.entries.extend(new);
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index + 1);
        self.persist::<C>(&[Change::Truncate(from)]).await?;
        let mut inner = self.lock();
        inner.kept.entries.retain(|index, _| *index < from);
        Ok(())
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        let mut inner = self.lock();
        inner.kept.entries.retain(|index, _| *index > id.index);
        inner.kept.purged = Some(id);
        // If that fails, the journal has more than needed, and is rewritten before the next record.
        let _later = inner.rewrite();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use durability::disk::Disk;
    use durability::simulated::{Fault, SimulatedDisk};
    use openraft::{AsyncRuntime as _, EntryPayload};
    use openraft_rt_sim::SimRuntime;

    use super::*;
    use crate::simulation::SimTypes;
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
        append(log, index).unwrap();
    }

    fn append(log: &DiskLog, index: u64) -> io::Result<()> {
        let entry = entry(index);
        log.lock().write(&[Change::Entry(&entry)], true)?;
        log.lock().kept.entries.insert(index, entry);
        Ok(())
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

    /// The system may forget a failed sync: readers of the file then see data that no disk has.
    #[test]
    fn what_a_start_finds_is_on_disk() {
        for seed in 0..50 {
            let disk = SimulatedDisk::new(seed);
            let log = open(&disk).unwrap();
            write(&log, 0);
            let unsynced = entry(1);
            log.lock()
                .write(&[Change::Entry(&unsynced)], false)
                .unwrap();
            drop(log);
            let found = indexes(&open(&disk).unwrap());
            let after = indexes(&open(&disk.crash(seed)).unwrap());
            assert_eq!(found, after, "{seed}");
        }
    }

    /// Returns a log whose disk fails from some operation on, and the acknowledged entries.
    fn failing(seed: u64, fault: Fault) -> (SimulatedDisk, DiskLog, Vec<u64>) {
        let disk = SimulatedDisk::new(seed);
        let log = open(&disk).unwrap();
        write(&log, 0);
        disk.fail(disk.operations() + seed % 7..u64::MAX, fault);
        let mut acknowledged = vec![0];
        while append(&log, acknowledged.len() as u64).is_ok() {
            acknowledged.push(acknowledged.len() as u64);
        }
        (disk, log, acknowledged)
    }

    /// Whichever operation fails, and however: acknowledged entries remain, and so do those after
    /// the fault.
    #[test]
    fn a_journal_that_could_not_be_written_is_written_again() {
        for (seed, fault) in (0..60).zip(Fault::ALL.into_iter().cycle()) {
            // One more failed attempt, and then a crash: no more is there than what was tried.
            let (disk, log, acknowledged) = failing(seed, fault);
            let next = acknowledged.len() as u64;
            assert!(append(&log, next).is_err(), "{seed}");
            let found = indexes(&open(&disk.crash(seed)).unwrap());
            assert!(found.starts_with(&acknowledged), "{seed}: {found:?}");
            assert!(found.len() <= acknowledged.len() + 1, "{seed}: {found:?}");

            let (disk, log, mut acknowledged) = failing(seed, fault);
            disk.heal();
            write(&log, next);
            acknowledged.push(next);
            let found = indexes(&open(&disk.crash(seed)).unwrap());
            assert_eq!(found, acknowledged, "{seed}");
        }
    }

    #[test]
    fn what_could_not_be_purged_is_so_with_the_next_record() {
        for is_written_again in [false, true] {
            let disk = SimulatedDisk::new(1);
            let mut log = open(&disk).unwrap();
            for index in 0..5 {
                write(&log, index);
            }
            disk.fail(disk.operations()..u64::MAX, Fault::Full);
            let purged = RaftLogStorage::<SimTypes>::purge(&mut log, entry(2).log_id);
            SimRuntime::with_seed(1).block_on(purged).unwrap();
            assert_eq!(indexes(&log), [3, 4]);
            disk.heal();
            if is_written_again {
                write(&log, 5);
            }
            let found = indexes(&open(&disk.crash(1)).unwrap());
            let expected: &[u64] = match is_written_again {
                false => &[0, 1, 2, 3, 4],
                true => &[3, 4, 5],
            };
            assert_eq!(found, expected);
        }
    }
}
