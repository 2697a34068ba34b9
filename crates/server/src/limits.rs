//! Limits of the memory that a client can make the server hold: output that it does not read, input
//! that it does not complete, and all clients together.

use std::sync::atomic::Ordering;

use engine::ClientRecord;
use reactor::{REPLIES_BYTES_UNASKED, Verdict};

use crate::config::{ClientsMemory, Config, OutputLimit};

/// State of a client's unread output between two checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputState {
    /// Time since which it has been above the soft limit.
    above_soft_since_ms: Option<u64>,
}

impl OutputState {
    /// Decides whether a client may continue with this amount of unread output.
    pub fn judge(&mut self, limit: &OutputLimit, pending_bytes: u64, now_ms: u64) -> Verdict {
        if limit.hard_bytes != 0 && pending_bytes > limit.hard_bytes {
            return Verdict::Close;
        }
        if limit.soft_bytes == 0 || pending_bytes <= limit.soft_bytes {
            self.above_soft_since_ms = None;
            return Verdict::Keep;
        }
        let since_ms = *self.above_soft_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) > limit.soft_s.saturating_mul(1000) {
            Verdict::Close
        } else {
            Verdict::Keep
        }
    }
}

/// Returns the number of bytes sent at once beyond which a client with this limit is certainly
/// closed; 0 for never. Fewer bytes are sent without checking any limit.
#[must_use]
pub fn replies_bytes_max(limit: &OutputLimit) -> u64 {
    match limit.hard_bytes {
        0 => 0,
        hard_bytes => hard_bytes.max(REPLIES_BYTES_UNASKED as u64),
    }
}

/// Maximum number of bytes of incomplete input that a client may have before it has authenticated:
/// ten arguments of 16 KiB and their lengths.
pub const UNAUTHENTICATED_INPUT_BYTES_MAX: u64 = 256 * 1024;

/// Maximum number of bytes of unread output that a client may have before it has authenticated.
pub const UNAUTHENTICATED_OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// Maximum number of bytes of all clients together that have not authenticated: the limits above,
/// times ten thousand strangers, would be gigabytes.
const UNAUTHENTICATED_BYTES_MAX: u64 = 16 << 20;

/// Bytes up to which a client is spared when all together hold too much: a client that is about to
/// authenticate holds less.
pub const UNAUTHENTICATED_BYTES_SPARED: u64 = 1024;

/// Maximum time that a client may stay connected without authenticating, if a password is required.
pub const UNAUTHENTICATED_MS_MAX: u64 = 60_000;

/// Returns one worker's part of the limit for clients that have not authenticated, in bytes.
#[must_use]
pub fn unauthenticated_bytes_max(workers_count: usize) -> u64 {
    UNAUTHENTICATED_BYTES_MAX / (workers_count.max(1) as u64)
}

/// Part of the memory available to the process that clients' buffers may take if
/// `maxmemory-clients` sets no limit: without a limit, clients could take the server down.
const CLIENTS_MEMORY_SHARE_DEFAULT: u64 = 4;

/// Returns the maximum number of bytes in the buffers of all clients together.
#[must_use]
pub fn clients_bytes_max(config: &Config, usable_bytes: u64) -> u64 {
    match config.clients_memory {
        ClientsMemory::Bytes(bytes) => bytes,
        ClientsMemory::Percent(percent) if config.memory_bytes_max > 0 => {
            config.memory_bytes_max / 100 * u64::from(percent)
        }
        ClientsMemory::Unlimited | ClientsMemory::Percent(_) => {
            usable_bytes / CLIENTS_MEMORY_SHARE_DEFAULT
        }
    }
}

/// Cost of a client besides its buffers, in bytes: its session, its record, its place.
pub const CLIENT_BYTES: u64 = 1024;

/// Returns the cost of one client, in bytes.
#[must_use]
pub fn held_by(client: &ClientRecord) -> u64 {
    CLIENT_BYTES + client.held_bytes.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: OutputLimit = OutputLimit {
        hard_bytes: 1000,
        soft_bytes: 100,
        soft_s: 2,
    };

    #[test]
    fn the_hard_limit_closes_at_once() {
        let mut state = OutputState::default();
        assert_eq!(state.judge(&LIMIT, 1000, 0), Verdict::Keep);
        assert_eq!(state.judge(&LIMIT, 1001, 0), Verdict::Close);
    }

    #[test]
    fn the_soft_limit_closes_after_its_time_above() {
        let mut state = OutputState::default();
        assert_eq!(state.judge(&LIMIT, 101, 10_000), Verdict::Keep);
        assert_eq!(state.judge(&LIMIT, 500, 12_000), Verdict::Keep);
        assert_eq!(
            state.judge(&LIMIT, 100, 12_500),
            Verdict::Keep,
            "back below: starts again"
        );
        assert_eq!(state.judge(&LIMIT, 101, 13_000), Verdict::Keep);
        assert_eq!(state.judge(&LIMIT, 101, 15_001), Verdict::Close);
    }

    #[test]
    fn what_is_sent_without_a_look_closes_nobody() {
        let of = |hard_bytes| {
            replies_bytes_max(&OutputLimit {
                hard_bytes,
                ..LIMIT
            })
        };
        let unasked = REPLIES_BYTES_UNASKED as u64;
        assert_eq!([of(0), of(1), of(unasked + 1)], [0, unasked, unasked + 1]);
    }

    #[test]
    fn no_limit_is_no_limit() {
        let mut state = OutputState::default();
        assert_eq!(
            state.judge(&OutputLimit::default(), u64::MAX, 0),
            Verdict::Keep
        );
    }
}
