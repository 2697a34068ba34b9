//! The stream across a restart: what of it is saved when, and how it is continued.
//!
//! A start continues the stream of the log on disk under a new name: what the former process had
//! sent and lost must not be confused with what is written from here on. Under the old name
//! replicas can continue up to the end of the log.

use std::sync::Arc;
use std::time::Duration;

use base::random::Prng;
use durability::log::Log;
use persistence::recovery::Place as FilePlace;
use replication::offset_index::OffsetIndex;
use replication::transcode::{Form, Transcoder};

use super::super::history::{History, new_id};
use super::file::{Kept, forget};
use super::{Counter, Counting, Frames, Stream};
use crate::config::system_reason;
use crate::node::Node;

/// The positions are saved again after this many more bytes of log were counted.
const SAVED_EVERY_BYTES: u64 = 32 << 20;
/// Maximum number of bytes of log that a start counts. If there is more, replicas get a full sync.
const COUNTED_AT_START_BYTES_MAX: u64 = 4 << 30;

/// How often to check whether the log is on disk, ...
const LOOK: Duration = Duration::from_millis(1);
/// ... and how many times.
const DISK_LOOKS: u32 = 5_000;

fn place_of(node: &Node) -> FilePlace {
    FilePlace::within(&node.core.config.current().dir)
}

/// The log on disk, if there is one.
fn log_on_disk(node: &Node) -> Option<Arc<Log>> {
    node.persistence().and_then(|kept| kept.log().log())
}

/// Waits until the log is on disk up to its present end: later positions do not count.
fn await_disk(log: &Log) {
    let end = log.tail_complete();
    log.request_sync(end);
    for _ in 0..DISK_LOOKS {
        if log.durable() >= end || log.fault().is_some() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

impl Stream {
    /// Continues the stream from before the start. No client is served yet.
    pub(crate) fn restore(&self, node: &Node) {
        let place = place_of(node);
        let Some(log) = log_on_disk(node) else {
            // A log that begins later is a different one.
            return forget(&place);
        };
        let Some(kept) = Kept::read(&place) else {
            return;
        };
        if self.take_up(node, &log, kept).is_some() {
            self.save(node);
        } else {
            node.core.log.notice(format_args!(
                "The stream of before the start cannot be continued: replicas that speak PSYNC will need a full sync"
            ));
            forget(&place);
        }
    }

    fn take_up(&self, node: &Node, log: &Arc<Log>, kept: Kept) -> Option<()> {
        let form = Form::of_tag(kept.form)?;
        let (oldest, end) = (log.oldest(), log.tail_complete());
        let is_there = |sequence: u64| (oldest..=end).contains(&sequence);
        let mut places = kept.places.into_iter();
        let first = places.find(|place| is_there(place.sequence))?;
        let mut index = OffsetIndex::new(first);
        let mut last = first;
        for place in places.filter(|place| is_there(place.sequence)) {
            index.note(place);
            last = place;
        }
        if end - last.sequence > COUNTED_AT_START_BYTES_MAX {
            return None;
        }
        let mut counter = Counter {
            frames: Frames::new(log, last.sequence),
            transcoder: Transcoder::new(form, last),
        };
        counter.count(&mut index, u64::MAX);
        let last = counter.transcoder.place();
        if last.sequence < end {
            return None;
        }
        let own = History {
            id: new_id(&mut Prng::from_os()),
            second: Some((kept.history.id, last.offset + 1)),
        };
        let follows = node.replication.follows();
        if !follows {
            node.replication.set_history(own);
        }
        index.note(last);
        node.core.log.notice(format_args!(
            "The stream {} is continued from offset {} on as {}",
            kept.history.id, last.offset, own.id
        ));
        *self.counting() = Some(Counting {
            own,
            counter,
            start: first,
            is_told: true,
            index,
            appender: None,
            log: Arc::clone(log),
            pinged_unix_ms: node.core.clock.now_unix_ms(),
            saved: last.sequence,
            before: follows.then_some((kept.history.id, last.offset)),
        });
        Some(())
    }

    /// Saves the positions of the stream, if its log is on disk. Not for workers, because it waits
    /// for the disk.
    pub(in super::super) fn save(&self, node: &Node) {
        let Some(on_disk) = log_on_disk(node) else {
            return;
        };
        await_disk(&on_disk);
        let follows = node.replication.follows();
        let names = node.replication.history();
        let form = self.form(node).tag();
        let kept = {
            let mut counting = self.counting();
            let Some(counting) = counting
                .as_mut()
                .filter(|it| Arc::ptr_eq(&it.log, &on_disk))
            else {
                return;
            };
            counting.index.forget_below(on_disk.oldest());
            let durable = on_disk.durable();
            let mut places = counting.index.places().to_vec();
            places.push(counting.counter.transcoder.place());
            // Positions in a part of the log that may be lost are useless.
            places.retain(|place| place.sequence <= durable);
            counting.saved = counting.counter.transcoder.place().sequence;
            Kept {
                form,
                history: if follows { counting.own } else { names },
                places,
            }
        };
        if let Err(error) = kept.write(&place_of(node)) {
            node.core.log.warning(format_args!(
                "After a restart replicas will need a full sync, as the place in their stream cannot be written: {}",
                system_reason(&error)
            ));
        }
    }

    /// Saves the positions if that is due. Called by replicas' threads.
    pub(in super::super) fn save_now_and_then(&self, node: &Node) {
        let is_due = self.counting().as_ref().is_some_and(|it| {
            it.counter
                .transcoder
                .place()
                .sequence
                .saturating_sub(it.saved)
                >= SAVED_EVERY_BYTES
        });
        if is_due {
            self.save(node);
        }
    }

    /// Counts the rest of the log before it is cut, and saves the positions.
    pub(crate) fn log_is_cut(&self, node: &Node) {
        let Some(end) = self.counting().as_ref().map(|it| it.log.tail_complete()) else {
            return;
        };
        let sequence = || {
            let mut counting = self.counting();
            counting.as_mut().map(|counting| {
                counting.count();
                counting.counter.transcoder.place().sequence
            })
        };
        let mut before = None;
        while let Some(now) = sequence() {
            if now >= end || before == Some(now) {
                break;
            }
            before = Some(now);
        }
        self.save(node);
    }

    /// Removes the saved state, so that no replica can continue from it.
    pub(super) fn forget(&self, node: &Node) {
        forget(&place_of(node));
    }
}
