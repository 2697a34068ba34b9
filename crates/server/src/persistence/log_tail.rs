//! The operation log as [`Tail`]: what workers see of it.

use std::sync::Arc;

use durability::log::{Level, Log};
use store::EffectSink;

use super::sink::LogSink;
use super::tail::{Appended, Tail};

/// See the module.
#[derive(Debug)]
pub struct LogTail {
    log: Arc<Log>,
}

impl LogTail {
    /// The tail of `log`.
    #[must_use]
    pub fn new(log: Arc<Log>) -> Self {
        Self { log }
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
        self.log.durable()
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

    fn has_room(&self) -> bool {
        self.log.has_room()
    }

    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink> {
        Box::new(LogSink::new(self.log.appender(), appended.clone()))
    }
}
