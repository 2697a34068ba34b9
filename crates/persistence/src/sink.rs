//! From the store to the log: the effects of one thread's writes.
//!
//! Called with the record locked, so for every key the order of frames is that of the store. It
//! does not wait, and allocates nothing in the steady state. A removal that no client requested is
//! logged as the command that would have done it.

use base::number::IntegerText;
use durability::log::{Appender, Control, SourceFrame};
use store::{Cause, DatabaseId, EffectSink, Source};

use super::tail::Appended;

/// Appends the effects of one [`store::Handle`] to the log.
#[derive(Debug)]
pub struct LogSink {
    appender: Appender,
    appended: Appended,
}

impl LogSink {
    /// Returns a sink for `appender`, which notes in `appended` where its effects end.
    #[must_use]
    pub fn new(appender: Appender, appended: Appended) -> Self {
        Self { appender, appended }
    }

    #[inline]
    fn append(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        self.appender.command(database, parts);
        self.appended.note(self.appender.end());
    }
}

impl EffectSink for LogSink {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        self.append(database, parts);
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], _: Cause) {
        self.append(database, &[b"DEL", key]);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        self.append(database, &[b"HDEL", key, member]);
    }

    fn etag(&mut self, database: DatabaseId, key: &[u8], etag: u64) {
        let etag = IntegerText::new_u64(etag);
        self.append(database, &[b"SETETAG", key, etag.as_bytes()]);
    }

    fn stands(&mut self, generation: u64, now_unix_ms: u64) {
        self.appender.generation(generation);
        self.appender.set_time(now_unix_ms);
    }

    fn source(&mut self, source: &Source) {
        self.appender.control(&Control::Source(SourceFrame {
            replid: source.id,
            offset: source.offset,
            database: source.database,
        }));
    }

    fn group_begin(&mut self) {
        self.appender.group_begin();
    }

    fn group_end(&mut self) {
        self.appender.group_end();
        self.appended.note(self.appender.end());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::sync::Arc;

    use base::clock::ManualClock;
    use durability::disk::Disk;
    use durability::log::{Log, Options, Reader};
    use durability::simulated::SimulatedDisk;
    use store::{Batch, Deadline, Ending, Handle, SnapshotLimits, SnapshotSink, Store, Totals};

    use super::*;

    /// Takes a snapshot and discards it.
    struct Nowhere;

    impl SnapshotSink for Nowhere {
        fn take(&mut self, _: Batch) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn end(&mut self, _: Ending, _: &Totals) {}
    }

    fn set(handle: &mut Handle, name: &[u8], deadline: Deadline) {
        let key = handle.key(2, name);
        let state = |entry: &mut store::Entry<'_>| {
            entry.effect(|effect| effect.command(&[b"SET", name, b"1"]));
        };
        handle.upsert(&key, b"1", deadline, state).unwrap();
    }

    #[test]
    fn effects_become_frames_with_their_time_and_generation() {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1));
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let path = Path::new("log");
        let log = Log::open(Arc::clone(&disk), clock, path, 0, Options::default()).unwrap();
        let store = Store::new(&store::Options::default()).unwrap();
        let mut handle = store.handle();
        handle.set_sink(Some(Box::new(LogSink::new(
            log.appender(),
            Appended::default(),
        ))));
        handle.begin(5_000);
        set(&mut handle, b"a", Deadline::At(6_000));
        handle.begin(7_000);
        // The record has expired, and a writer finds it.
        set(&mut handle, b"a", Deadline::Never);
        let begun = handle.begin_snapshot(Box::new(Nowhere), SnapshotLimits::default());
        set(&mut handle, b"b", Deadline::Never);
        log.close().unwrap();

        let mut reader = Reader::open(disk, path, 0).unwrap();
        let (mut seen, mut generations) = (Vec::new(), Vec::new());
        while let Some(frame) = reader.next_frame().unwrap() {
            let effect = frame.effects().next().unwrap();
            let parts: Vec<_> = effect.parts.map(String::from_utf8_lossy).collect();
            let text = parts.join(" ");
            assert_eq!(effect.database, 2);
            generations.push(effect.generation);
            seen.push((frame.unix_ms, text));
        }
        let set = "SET a 1";
        let other = "SET b 1";
        let expected = [(5_000, set), (7_000, "DEL a"), (7_000, set), (7_000, other)];
        assert_eq!(seen, expected.map(|(at, text)| (at, text.to_owned())));
        let first = generations[0];
        assert_eq!(generations, [first, first, first, begun.unwrap()]);
        assert_ne!(first, generations[3]);
    }
}
