//! The end of a log that is not known to be durable, when the log is opened.
//!
//! The frames that a reader found may be only in the system's memory: the process ended, the system
//! did not. A sync now would not help: an earlier one may have failed, and after that another one
//! succeeds without having kept anything. So everything above the last statement of what is durable
//! is written again, as after a failed sync ([`Log::heal`]). After an orderly end that is nothing;
//! otherwise it is what would have been synced next.

use std::io;
use std::sync::Arc;

use super::appender::write_across;
use super::locks::lock;
use super::open_log::Log;
use super::reader::{LogError, Reader, Tail, refusal};

impl Log {
    /// Begins a file at the durable end with the frames from there to `start`, and makes all of it
    /// durable. The file is made even if there are none: so bytes behind `start` do not come back,
    /// and a directory without a file must have lost it.
    ///
    /// If the device has no space for it, the log has a fault afterwards, as when the device fills
    /// up under a running log: the frames that are not durable are in memory as well as in the
    /// files, and are written when there is space.
    pub(super) fn write_remainder(&self, start: u64) -> io::Result<()> {
        let durable = self.durable();
        if durable < start {
            self.take_from_files(durable, start).map_err(refusal)?;
        }
        let mut writer = lock(&self.writer);
        let mut healed = self.heal(&mut writer);
        if self.is_full() {
            self.give_back_room(start);
            healed = self.heal(&mut writer);
        }
        match healed {
            Err(fault) if !self.is_full() => Err(io::Error::new(fault.kind, fault)),
            _ => Ok(()),
        }
    }

    /// Frees the space that the file which ends at `start` has reserved behind that. Errors are
    /// ignored here; the next write reports them.
    fn give_back_room(&self, start: u64) {
        let reader = Reader::open(Arc::clone(&self.disk), &self.directory, start);
        let _cut = reader.map_err(refusal).and_then(|mut reader| {
            reader.pass(start).map_err(refusal)?;
            match reader.tail() {
                Some(Tail {
                    end,
                    place: Some((path, offset)),
                    ..
                }) if *end == start => self.disk.open_for_writing(path)?.set_len(*offset),
                _ => Ok(()),
            }
        });
    }

    /// Reads the frames of a range into memory.
    fn take_from_files(&self, from: u64, end: u64) -> Result<(), LogError> {
        let mut reader = Reader::open(Arc::clone(&self.disk), &self.directory, from)?;
        while reader.sequence() < end
            && let Some((sequence, bytes)) = reader.next_bytes()?
        {
            let (words, _) = bytes.as_chunks();
            let _chunk = write_across(self, sequence, words);
        }
        if reader.sequence() < end {
            return Err(reader.damage("what has to be written again is not whole"));
        }
        Ok(())
    }
}
