//! Requested failures, by the number of the operation.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

/// A way in which an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device reports an error (EIO). A write may have any first part applied; the outcome of a
    /// sync is unknown.
    Device,
    /// There is no space (ENOSPC): for writes, longer files, names, and for a sync, which is where
    /// a file system with delayed allocation finds out.
    Full,
    /// A write ends early, without a reason.
    Short,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Device, Self::Full, Self::Short];

    fn error(self) -> io::Error {
        match self {
            Self::Device => Errno::IO.into(),
            Self::Full => Errno::NOSPC.into(),
            Self::Short => io::ErrorKind::WriteZero.into(),
        }
    }
}

/// Counts operations and decides which of them fail.
#[derive(Default)]
pub(super) struct Plan {
    operations: u64,
    struck: u64,
    faults: Vec<(Range<u64>, Fault)>,
    power_cut_at: Option<u64>,
    is_off: bool,
    /// Whether the power was cut during the current operation.
    is_cut_now: bool,
}

impl Plan {
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    pub(super) fn fail(&mut self, operations: Range<u64>, fault: Fault) {
        self.faults.push((operations, fault));
    }

    pub(super) fn heal(&mut self) {
        self.faults.clear();
    }

    pub(super) fn cut_power_at(&mut self, operation: u64) {
        self.power_cut_at = Some(operation);
    }

    pub(super) fn cut_power(&mut self) {
        self.is_off = true;
        self.is_cut_now = false;
    }

    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Whether the power was cut during the operation just begun.
    pub(super) fn is_cut_now(&self) -> bool {
        self.is_cut_now
    }

    /// Begins an operation that changes nothing.
    pub(super) fn asks(&mut self) -> io::Result<()> {
        self.begins(&[Fault::Device])
    }

    /// Begins an operation that may need space.
    pub(super) fn changes(&mut self) -> io::Result<()> {
        self.begins(&[Fault::Device, Fault::Full])
    }

    /// Begins an operation that makes something durable.
    pub(super) fn syncs(&mut self) -> io::Result<()> {
        self.begins(&[Fault::Device, Fault::Full])
    }

    /// Begins a write.
    pub(super) fn writes(&mut self) -> io::Result<()> {
        self.begins(&Fault::ALL)
    }

    fn begins(&mut self, possible: &[Fault]) -> io::Result<()> {
        let operation = self.operations;
        self.operations += 1;
        self.is_cut_now = !self.is_off && self.power_cut_at.is_some_and(|cut| operation >= cut);
        self.is_off |= self.is_cut_now;
        if self.is_off {
            return Err(io::Error::other("the power is off"));
        }
        let mut faults = self.faults.iter();
        let planned =
            faults.find(|(range, fault)| range.contains(&operation) && possible.contains(fault));
        match planned {
            None => Ok(()),
            Some((_, fault)) => {
                self.struck += 1;
                Err(fault.error())
            }
        }
    }
}
