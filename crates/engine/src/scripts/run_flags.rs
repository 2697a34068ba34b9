//! The flags in the first line of a script, or of a function.

/// The declared flags of a script or function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFlags {
    /// It changes nothing.
    pub no_writes: bool,
    /// It may run when memory is full.
    pub allow_oom: bool,
    /// It may run on a replica that has lost its primary.
    pub allow_stale: bool,
    /// It does not run in cluster mode.
    pub no_cluster: bool,
    /// It may use keys of several hash slots of this node.
    pub crosses_slots: bool,
}

impl RunFlags {
    /// Adds a flag. Returns whether it is valid. Some flags have no effect here.
    pub fn add(&mut self, flag: &[u8]) -> bool {
        match flag {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" => self.no_cluster = true,
            b"allow-cross-slot-keys" => self.crosses_slots = true,
            _ => return false,
        }
        true
    }
}
