//! The operation log as [`Tail`]: what workers see of it.
//!
//! A log that was begun while the server runs counts only once a checkpoint in force continues with
//! it. Until then a start would ignore it, so nothing in it is reported durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use durability::log::{Level, Log};
use store::EffectSink;

use super::sink::LogSink;
use super::tail::{Appended, BEFORE_LOG, Tail};

/// See the module.
#[derive(Debug)]
pub struct LogTail {
    log: Arc<Log>,
    /// Whether a start would read it.
    counts: Arc<AtomicBool>,
}

impl LogTail {
    /// Returns the tail of `log`, which counts once `counts` is set.
    #[must_use]
    pub fn new(log: Arc<Log>, counts: Arc<AtomicBool>) -> Self {
        Self { log, counts }
    }
}

impl Tail for LogTail {
    fn tail(&self) -> u64 {
        self.log.tail()
    }

    fn written(&self) -> u64 {
        self.log.written()
    }

    fn durable(&self) -> u64 {
        if self.counts.load(Ordering::Acquire) {
            self.log.durable().max(BEFORE_LOG)
        } else {
            0
        }
    }

    fn holds_replies(&self) -> bool {
        self.log.level() == Level::Always
    }

    fn write_out(&self, up_to: u64) -> Result<(), String> {
        self.log.write_out(up_to).map_err(|fault| fault.text)
    }

    fn request_sync(&self, up_to: u64) {
        self.log.request_sync(up_to);
    }

    fn fault(&self) -> Option<String> {
        self.log.fault().map(|fault| fault.text)
    }

    fn has_room(&self, now_ns: u64) -> bool {
        self.log.has_room_at(now_ns)
    }

    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink> {
        Box::new(LogSink::new(self.log.appender(), appended.clone()))
    }
}
