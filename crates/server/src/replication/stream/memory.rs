//! The log in memory of a server that keeps none on disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use durability::log::Log;
use persistence::log_tail::LogTail;
use persistence::sink::LogSink;
use persistence::tail::{Appended, Tail};
use store::EffectSink;

/// A log in memory, as workers see it: nothing in it is persisted, and no reply waits for it.
pub(super) struct MemoryTail {
    log: Arc<Log>,
    tail: LogTail,
}

impl MemoryTail {
    pub(super) fn new(log: &Arc<Log>) -> Self {
        Self {
            log: Arc::clone(log),
            tail: LogTail::new(Arc::clone(log), Arc::new(AtomicBool::new(true))),
        }
    }
}

impl Tail for MemoryTail {
    fn tail(&self) -> u64 {
        self.tail.tail()
    }

    fn written(&self) -> u64 {
        self.tail.written()
    }

    fn durable(&self) -> u64 {
        self.tail.tail()
    }

    fn holds_replies(&self) -> bool {
        false
    }

    fn is_kept(&self) -> bool {
        false
    }

    fn write_out(&self, up_to: u64) -> Result<(), String> {
        self.tail.write_out(up_to)
    }

    fn request_sync(&self, _up_to: u64) {}

    fn fault(&self) -> Option<String> {
        None
    }

    fn has_room(&self, _now_ns: u64) -> bool {
        true
    }

    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink> {
        Box::new(LogSink::new(self.log.appender(), appended.clone()))
    }
}
