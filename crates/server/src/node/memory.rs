//! Memory of a server: what INFO and MEMORY STATS show, and what counts for `maxmemory`.

use std::sync::atomic::Ordering;

use engine::ServerMemory;

use super::Node;
use crate::allocator::{self, AllocatorMemory};
use crate::{limits, process};

/// The log's memory counts as at most `maxmemory` divided by this.
const LOG_PART_MAX: u64 = 4;

impl Node {
    /// Reports the memory outside of the store to the store, whose limit counts it.
    pub fn tell_held_bytes(&self) {
        let program_bytes = self.process.program_bytes.load(Ordering::Relaxed);
        let tier_bytes = self.tier().map_or(0, |tier| tier.segments().memory_bytes());
        let used_bytes = program_bytes + self.clients_held_bytes() + tier_bytes;
        // The log may have been opened under a higher limit: it must not take all memory from the
        // keys.
        let limit_bytes = self.core.config.current().memory_bytes_max;
        let log_bytes = self.log_memory_bytes().min(limit_bytes / LOG_PART_MAX);
        self.core.store.set_other_bytes(used_bytes + log_bytes);
        self.core
            .env
            .other_bytes
            .store(used_bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the operation log's memory that do not count for `maxmemory`.
    pub fn uncounted_log_bytes(&self) -> u64 {
        match self.core.config.current().memory_bytes_max {
            0 => 0,
            limit_bytes => self
                .log_memory_bytes()
                .saturating_sub(limit_bytes / LOG_PART_MAX),
        }
    }

    /// Returns the bytes of the operation log's memory (`mem_aof_buffer`); 0 without a log.
    fn log_memory_bytes(&self) -> u64 {
        let log = self.persistence().and_then(|it| it.log().log());
        log.map_or(0, |log| log.memory_bytes())
    }

    /// Returns the memory of all clients, in bytes.
    #[must_use]
    pub fn clients_held_bytes(&self) -> u64 {
        let buffers = self.workers().iter();
        let buffers: u64 = buffers.map(|one| one.counters.client_bytes.get()).sum();
        buffers + limits::CLIENT_BYTES * (self.sessions.clients.len() as u64)
    }

    /// Records the memory of the process before the first client. Called before the threads start,
    /// and again once all of them run.
    pub fn note_startup_memory(&self) {
        let store_bytes = self.core.store.statistics().used_bytes;
        self.process.program_bytes.store(
            process::memory().private_bytes.saturating_sub(store_bytes),
            Ordering::Relaxed,
        );
        self.process
            .store_startup_bytes
            .store(store_bytes, Ordering::Relaxed);
    }

    /// Records the used memory if it is a new maximum. Does not ask the system for the resident
    /// size, which would take a fraction of a millisecond.
    pub(super) fn note_peak(&self) {
        let program = self.process.program_bytes.load(Ordering::Relaxed);
        let used = program + self.clients_held_bytes() + self.core.store.statistics().used_bytes;
        self.process.peak_bytes.fetch_max(used, Ordering::Relaxed);
    }

    /// Returns the present memory of the server.
    pub fn memory(&self) -> ServerMemory {
        let store = self.core.store.statistics();
        let program = self.process.program_bytes.load(Ordering::Relaxed);
        let clients = self.clients_held_bytes();
        let used = program + clients + store.used_bytes;
        let resident = process::memory().resident_bytes;
        let mapped = store.memory.index_bytes + store.memory.page_bytes;
        let slots = store.memory;
        // The store maps its own memory; the rest is the allocator's.
        let allocator = match allocator::installed().memory() {
            Some(of) => AllocatorMemory {
                allocated: of.allocated + mapped + slots.slot_bytes,
                active: of.active + mapped + slots.slot_held_bytes,
                resident: of.resident + mapped + slots.slot_held_bytes,
                muzzy: of.muzzy,
            },
            None => AllocatorMemory {
                allocated: used,
                active: used + slots.slot_held_bytes.saturating_sub(slots.slot_bytes),
                resident,
                muzzy: 0,
            },
        };
        ServerMemory {
            resident,
            used,
            allocator,
            log: self.log_memory_bytes(),
            peak: self
                .process
                .peak_bytes
                .fetch_max(used, Ordering::Relaxed)
                .max(used),
            startup: program + self.process.store_startup_bytes.load(Ordering::Relaxed),
            clients,
            overhead: program + clients + store.memory.index_bytes.min(store.used_bytes),
        }
    }
}
