//! The fault of a log whose file failed.

use std::fmt;
use std::io;

use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, Ordering};

use super::locks::lock;

/// Why nothing can be written at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFault {
    /// The system's error message, with the file.
    pub text: String,
    /// The kind of error.
    pub kind: io::ErrorKind,
}

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LogFault {}

impl LogFault {
    pub(super) fn new(path: &std::path::Path, error: &io::Error) -> Self {
        Self {
            text: format!("{}: {error}", path.display()),
            kind: error.kind(),
        }
    }
}

/// The present fault, if any.
#[derive(Debug, Default)]
pub(super) struct Faults {
    is_any: AtomicBool,
    fault: Mutex<Option<LogFault>>,
}

impl Faults {
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(super) fn get(&self) -> Option<LogFault> {
        self.is_any().then(|| lock(&self.fault).clone()).flatten()
    }

    pub(super) fn set(&self, fault: Option<LogFault>) {
        let mut place = lock(&self.fault);
        self.is_any.store(fault.is_some(), Ordering::Release);
        *place = fault;
    }
}
