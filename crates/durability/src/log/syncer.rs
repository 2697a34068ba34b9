//! Makes written frames durable: the only owner of the durable watermark.
//!
//! One sync serves all threads that wait at that moment; while it runs, others append and write.
//! Everything is in [`Log::sync_step`], which waits for nothing but the device: a simulation calls
//! it in the thread that does everything else.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::fence;

use super::fault::LogFault;
use super::locks::lock;
use super::open_log::Log;
use super::options::Level;
use super::options::{GATHER_NS_MAX, GATHER_SHARE, HEAL_MS, LAZY_SYNC_NS, LOOK_MS, SYNC_NS};
use super::writer::Segment;
use crate::planted::{self, Bug};

/// Bytes that the last sync made durable or that were appended meanwhile, and its duration.
#[derive(Debug, Default)]
pub(super) struct Group {
    bytes: AtomicU64,
    /// While the syncing thread gathers writes, it is not to be woken before the log reaches this
    /// sequence.
    awaited: AtomicU64,
    took_ns: AtomicU64,
}

/// What the syncing thread sleeps on. Not the model checker's types, because it only shortens a
/// sleep.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: std::sync::Mutex<bool>,
    changed: std::sync::Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        let mut rung = self
            .rung
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let was_rung = std::mem::replace(&mut *rung, true);
        drop(rung);
        // The woken thread needs the lock: if it were still held, that thread would sleep again at
        // once.
        if !was_rung {
            self.changed.notify_one();
        }
    }

    /// Sleeps for `patience`, or until the bell is rung.
    fn wait(&self, patience: Duration) {
        let rung = self
            .rung
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, patience, |rung| !*rung);
        *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0 = false;
    }
}

impl Log {
    /// Requests that everything below a sequence be made durable soon, at any level.
    /// [`Log::on_durable`] reports when it is.
    pub fn request_sync(&self, up_to: u64) {
        if self.is_volatile {
            return;
        }
        let up_to = up_to.min(self.tail());
        let wanted = self.wanted.fetch_max(up_to, Ordering::AcqRel);
        // Either a thread that has ceased to gather sees this request, or this thread sees that it
        // has ceased.
        fence(Ordering::SeqCst);
        let is_awaited = up_to >= self.group.awaited.load(Ordering::Relaxed);
        // Once for each sequence: a repeated request would wake the syncing thread again after the
        // sync, for nothing.
        if is_awaited && wanted < up_to && self.durable() < up_to {
            self.bell.ring();
        }
    }

    /// Makes durable what is due, until `stop` is set, on a thread that does nothing else.
    /// [`Log::request_sync`] wakes it.
    pub fn run_syncer(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.gather();
            let ms = self.sync_step();
            if ms > 0 {
                self.bell.wait(Duration::from_millis(ms));
            }
        }
    }

    /// Waits until the clients that the last sync answered have written again, for a small fraction
    /// of that sync's duration. Otherwise clients split into two halves, each of which waits for
    /// the sync of the other.
    fn gather(&self) {
        let began_ns = self.clock.monotonic_ns();
        let took_ns = self.group.took_ns.load(Ordering::Relaxed);
        let patience_ns = (took_ns / GATHER_SHARE).min(GATHER_NS_MAX);
        let all_bytes = self.group.bytes.load(Ordering::Relaxed);
        let enough = self.durable() + all_bytes - all_bytes / GATHER_SHARE;
        self.group.awaited.store(enough, Ordering::Relaxed);
        while self.level() == Level::Always && !self.faults.is_any() {
            let waited_ns = self.clock.monotonic_ns().saturating_sub(began_ns);
            let are_back = self.held_bytes() == 0 || self.tail() >= enough;
            if are_back || waited_ns >= patience_ns {
                break;
            }
            self.bell
                .wait(Duration::from_nanos(patience_ns - waited_ns));
        }
        self.group.awaited.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Wakes [`Log::run_syncer`], which then checks `stop`.
    pub fn wake_syncer(&self) {
        self.bell.ring();
    }

    /// Does what is due: a sync, healing, files and memory for what follows. Returns the
    /// milliseconds until something else is due, unless it is requested before.
    pub fn sync_step(&self) -> u64 {
        if self.is_volatile {
            return LOOK_MS;
        }
        let syncing = lock(&self.syncing);
        let before = (self.durable(), self.faults.is_any());
        if before.1 {
            // The error remains visible in the fault.
            let _fault = self.heal(&mut lock(&self.writer));
        } else {
            // Before a sync as well as after it, because a sync may take as long as it takes to
            // fill a segment. Lack of space is reported when the segment is needed.
            let _later = self.grow_ring().and_then(|()| self.prepare());
            let is_stored = self.store_pieces().is_ok();
            if is_stored && self.is_due() {
                let _fault = self.sync_now();
            } else if is_stored {
                self.settle();
            }
        }
        if !self.faults.is_any() {
            let _later = self.prepare().and_then(|()| self.grow_ring());
            self.memory.prepare();
        }
        let after = (self.durable(), self.faults.is_any());
        drop(syncing);
        if after != before {
            self.tell();
        }
        self.next_step_ms()
    }

    /// Makes everything durable that was appended before, and states so in the file, which is then
    /// as long as its content. For an orderly end; the log remains usable.
    ///
    /// # Errors
    /// The present fault, or a new one.
    pub fn close(&self) -> Result<(), LogFault> {
        if self.is_volatile {
            return Ok(());
        }
        let syncing = lock(&self.syncing);
        let result = self.close_held();
        drop(syncing);
        self.tell();
        result
    }

    fn close_held(&self) -> Result<(), LogFault> {
        if self.faults.is_any() {
            self.heal(&mut lock(&self.writer))?;
        }
        self.sync_now()?;
        let mut writer = lock(&self.writer);
        self.state_durable(&mut writer)?;
        let Some(segment) = writer.current.clone() else {
            return Ok(());
        };
        let cut = segment.file.set_len(segment.offset);
        cut.and_then(|()| segment.file.sync())
            .map_err(|error| self.fail(&mut writer, &error))
    }

    fn is_due(&self) -> bool {
        let (written, durable) = (self.written(), self.durable());
        if self.wanted.load(Ordering::Acquire) > durable {
            return true;
        }
        match self.level() {
            Level::Always => self.tail() > durable,
            _ if written - durable.min(written) >= self.options.unsynced_bytes_max => true,
            _ => self.sync_in_ns() == Some(0),
        }
    }

    /// Returns the time after which the unsynced frames are old enough for a sync, or `None` if
    /// there are none.
    fn sync_in_ns(&self) -> Option<u64> {
        let since_ns = self.unsynced_since_ns.load(Ordering::Relaxed);
        let patience_ns = match self.level() {
            Level::EverySecond => SYNC_NS,
            _ => LAZY_SYNC_NS,
        };
        let age_ns = self.clock.monotonic_ns().saturating_sub(since_ns);
        (since_ns != 0).then(|| patience_ns.saturating_sub(age_ns))
    }

    fn next_step_ms(&self) -> u64 {
        if self.faults.is_any() {
            return HEAL_MS;
        }
        if self.is_due() || self.has_piece() || self.memory.is_growing() {
            return 0;
        }
        let ms = self.sync_in_ns().map(|ns| ns / 1_000_000 + 1);
        ms.unwrap_or(LOOK_MS).min(LOOK_MS)
    }

    /// Writes all complete frames, and syncs them.
    fn sync_now(&self) -> Result<(), LogFault> {
        let mut writer = lock(&self.writer);
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        // Frames written from here on are not older than this.
        let began_ns = self.clock.monotonic_ns().max(1);
        self.write_block(&mut writer, self.places.complete())?;
        let target = self.stored();
        let full = std::mem::take(&mut writer.full);
        let (current, has_new_name) = (writer.current.clone(), writer.has_new_name);
        writer.has_new_name = false;
        drop(writer);

        if planted::is_on(Bug::AcknowledgedEarly) {
            self.durable.fetch_max(target, Ordering::AcqRel);
        }
        if self.level() != Level::Always {
            let unsynced_bytes = target.saturating_sub(self.durable());
            begin_sync(&full, current.as_ref(), unsynced_bytes);
            // A segment may have been filled meanwhile.
            let _later = self.prepare();
        }
        let result = self.sync_files(&full, current.as_ref(), has_new_name);

        let mut writer = lock(&self.writer);
        if let Err(error) = result
            && !planted::is_on(Bug::FailedSyncBelieved)
        {
            return Err(self.fail(&mut writer, &error));
        }
        let before = self.durable.fetch_max(target, Ordering::AcqRel);
        let took_ns = self.clock.monotonic_ns().saturating_sub(began_ns);
        self.group.took_ns.store(took_ns, Ordering::Relaxed);
        let bytes = self.tail().saturating_sub(before);
        self.group.bytes.store(bytes, Ordering::Relaxed);
        // A write that failed meanwhile has lowered `stored` and `written`.
        self.stored.fetch_max(target, Ordering::AcqRel);
        self.written.fetch_max(target, Ordering::AcqRel);
        if self.written() == target {
            self.note_durable(target);
        } else {
            self.unsynced_since_ns.store(began_ns, Ordering::Relaxed);
        }
        if !writer.has_new_name {
            writer.remove_superseded(&*self.disk);
        }
        full.iter()
            .try_for_each(|segment| segment.state_next(target))
            .map_err(|error| self.fail(&mut writer, &error))?;
        drop(writer);
        self.memory.release(target);
        Ok(())
    }

    /// Syncs the files in log order, then their names.
    fn sync_files(
        &self,
        full: &[Segment],
        current: Option<&Segment>,
        has_new_name: bool,
    ) -> io::Result<()> {
        if planted::is_on(Bug::SyncSkipped) {
            return Ok(());
        }
        for segment in full {
            segment.file.set_len(segment.offset)?;
            segment.file.sync()?;
            // As many bytes may have been written meanwhile as were synced here.
            let _later = self.prepare();
        }
        if let Some(segment) = current {
            segment.file.sync()?;
        }
        if has_new_name && !planted::is_on(Bug::DirectorySyncSkipped) {
            self.disk.sync_directory(&self.directory)?;
        }
        Ok(())
    }

    /// Makes more of the ring ready if writes need it and the device has space: a chunk takes its
    /// length in the ring and in the ring's spare file, and must not take the space of the next
    /// segment.
    fn grow_ring(&self) -> io::Result<()> {
        let has_room = |chunk_bytes: u64| {
            let room_bytes = self.disk.room_bytes(&self.directory);
            let wanted = 2 * chunk_bytes + self.options.segment_bytes;
            room_bytes.is_none_or(|room_bytes| room_bytes >= wanted)
        };
        self.memory.grow(self.tail(), has_room)
    }

    /// Makes later steps cheap, when the log has been idle for a while.
    fn settle(&self) {
        if self.durable() == self.tail() {
            let _fault = self.state_durable(&mut lock(&self.writer));
            // Pages are freed one by one: a new write does not wait for that.
            self.memory.shrink();
        }
    }
}

/// Starts the sync of the last `bytes` of some segments, while no client waits for it: then the
/// sync itself finds little to do and does not hold the core. Heads of blocks are not counted: the
/// sync does what they displace.
fn begin_sync(full: &[Segment], current: Option<&Segment>, mut bytes: u64) {
    for segment in current.into_iter().chain(full.iter().rev()) {
        let from = segment.offset.saturating_sub(bytes);
        segment.file.begin_sync(from..segment.offset);
        bytes -= segment.offset - from;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use base::clock::ManualClock;

    use super::super::open_log::Log;
    use super::super::options::{Level, Options};
    use super::super::reader::Reader;
    use crate::disk::Disk as _;
    use crate::simulated::SimulatedDisk;

    fn is_rung(log: &Log) -> bool {
        *log.bell.rung.lock().unwrap()
    }

    #[test]
    fn the_syncer_is_woken_once_for_a_place() {
        let disk = Arc::new(SimulatedDisk::new(1));
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let log = Log::open(disk, clock, Path::new("log"), 0, Options::default()).unwrap();
        log.set_level(Level::Always);
        log.bell.wait(Duration::ZERO);
        let mut appender = log.appender();
        for _ in 0..2 {
            appender.command(0, &[b"SET", b"a", b"1"]);
            log.write_out(log.tail()).unwrap();
            assert!(is_rung(&log), "there is something to sync");
            log.bell.wait(Duration::ZERO);
            log.request_sync(log.tail());
            assert!(!is_rung(&log), "nothing that was not said before");
            log.sync_step();
            assert_eq!(log.durable(), log.tail());
        }
        // While the syncing thread gathers, only the last of the awaited writes wakes it.
        log.group.awaited.store(u64::MAX, Ordering::Relaxed);
        appender.command(0, &[b"SET", b"a", b"1"]);
        log.write_out(log.tail()).unwrap();
        assert!(!is_rung(&log));
        assert!(
            log.is_due(),
            "it is seen when nobody is waited for any more"
        );
    }

    fn with_short_segments() -> (Arc<SimulatedDisk>, Arc<Log>) {
        let disk = Arc::new(SimulatedDisk::new(1));
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let options = Options {
            segment_bytes: 16 << 10,
            ..Options::default()
        };
        let log = Log::open(disk.clone(), clock, Path::new("log"), 0, options).unwrap();
        (disk, log)
    }

    #[test]
    fn the_next_segment_is_there_long_before_the_current_one_is_full() {
        let (disk, log) = with_short_segments();
        let is_ready = || {
            disk.list(Path::new("log"))
                .unwrap()
                .contains(&"next.new".into())
        };
        let mut appender = log.appender();
        let value = [b'v'; 512];
        for _ in 0..3 {
            appender.command(0, &[b"SET", b"a", &value]);
            log.write_out(log.tail()).unwrap();
        }
        assert!(!is_ready(), "nobody made it yet");
        log.sync_step();
        assert!(is_ready());
    }

    /// A thread that hands frames over writes them and names files; it creates no file and syncs
    /// nothing.
    #[test]
    fn segments_that_are_filled_during_one_sync_are_there_before() {
        let (disk, log) = with_short_segments();
        let ready = || {
            let names = disk.list(Path::new("log")).unwrap();
            names.iter().filter(|name| name.ends_with(".new")).count()
        };
        let mut appender = log.appender();
        let mut write = |count| {
            let before = disk.operations();
            for _ in 0..count {
                appender.command(0, &[b"SET", b"a", &[b'v'; 400]]);
                log.write_out(log.tail()).unwrap();
            }
            disk.operations() - before
        };
        let mut frames = 0;
        for _ in 0..4 {
            frames += write(1);
            log.request_sync(log.tail());
            log.sync_step();
        }
        assert_eq!(ready(), 1, "it is written to slowly");
        for _ in 0..5 {
            frames += write(5);
            log.sync_step();
            assert_eq!(ready(), 3, "it is written to fast");
            let (mut operations, mut written) = (0, 0);
            while ready() > 0 {
                operations += write(1);
                written += 1;
            }
            assert_eq!(operations, written + 3, "writes and three names");
            frames += written;
            log.request_sync(log.tail());
            log.sync_step();
        }
        log.close().unwrap();
        let shared: Arc<dyn crate::disk::Disk> = disk;
        let mut reader = Reader::open(shared, Path::new("log"), 0).unwrap();
        while reader.next_frame().unwrap().is_some() {
            frames -= 1;
        }
        assert_eq!(frames, 0, "all of them are there");
    }
}
