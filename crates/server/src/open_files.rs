//! Limit of open files, which clients and segments of a tier need.

use std::io;

use base::process;

use crate::config::{ApplyError, Config, Settings, system_reason};
use crate::log::Log;

/// Number of other files: logs, files being written, libraries' own.
const RESERVED: u64 = 32;
/// Number of files of one worker: its event loop, its waker, its listeners.
const PER_WORKER: u64 = 8;
/// Number of files that a tier has in any case.
const TIER: u64 = 64;
/// Number of files of a tier's segment: one through the system's cache, and one past it.
const PER_SEGMENT: u64 = 2;
/// Number of segments besides full ones: those being written or compacted.
const SPARE_SEGMENTS: u64 = 8;

/// Raises the limit for `maxclients` at start. If the system does not permit it, lowers
/// `maxclients` to what the limit permits, and logs that.
pub fn make_room(settings: &mut Settings, log: &Log) {
    let config = settings.config();
    let wanted = wanted(&config);
    let files = match process::raise_open_files(wanted) {
        Ok(files) => files,
        Err(error) => {
            let reason = system_reason(&error);
            log.warning(format_args!(
                "Can't learn how many files may be open: {reason}"
            ));
            return;
        }
    };
    if files.now < wanted {
        let clients_max = clients_in(files.now, &config);
        log.warning(format_args!(
            "maxclients {} needs {wanted} open files, the system allows {}: maxclients is {} now. \
             Raise the limit with 'ulimit -n'.",
            config.clients_max,
            files.now,
            clients_max.max(1)
        ));
        settings.lower_clients_max(clients_max);
    } else if files.now > files.before {
        log.notice(format_args!(
            "Increased maximum number of open files to {} (it was originally set to {}).",
            files.now, files.before
        ));
    }
}

/// Raises the limit for a new `maxclients`.
///
/// # Errors
/// [`ApplyError`] with the number of clients that the limit permits.
pub fn make_more_room(config: &Config) -> Result<(), ApplyError> {
    let wanted = wanted(config);
    let refuse = |reason: String| ApplyError {
        name: "maxclients",
        reason,
    };
    let raised: io::Result<_> = process::raise_open_files(wanted);
    let files = raised.map_err(|error| refuse(system_reason(&error)))?;
    if files.now >= wanted {
        return Ok(());
    }
    let possible = clients_in(files.now, config);
    Err(refuse(format!(
        "The operating system is not able to handle the specified number of clients, try with \
         {possible}"
    )))
}

/// Raises the limit for the segments of a tier in addition to the clients. Returns how many bytes
/// the tier may take: `bytes_max`, or what the limit permits.
pub(crate) fn make_room_for_tier(config: &Config, bytes_max: u64, segment_bytes: u64) -> u64 {
    let segment_bytes = segment_bytes.max(1);
    let segments = bytes_max.div_ceil(segment_bytes) + SPARE_SEGMENTS;
    let more = segments.saturating_mul(PER_SEGMENT).saturating_sub(TIER);
    let Ok(files) = process::raise_open_files(wanted(config).saturating_add(more)) else {
        // The check for clients has already logged the failure.
        return bytes_max;
    };
    let files = TIER + files.now.saturating_sub(wanted(config)).min(more);
    let segments = (files / PER_SEGMENT).saturating_sub(SPARE_SEGMENTS);
    bytes_max.min(segments.saturating_mul(segment_bytes))
}

/// Returns the number of open files for the clients and workers of `config`, and for a tier in any
/// case.
fn wanted(config: &Config) -> u64 {
    u64::from(config.clients_max) + others(config)
}

/// Returns how many clients `files` open files permit.
fn clients_in(files: u64, config: &Config) -> u32 {
    let room = files.saturating_sub(others(config));
    u32::try_from(room).unwrap_or(u32::MAX)
}

fn others(config: &Config) -> u64 {
    let tier = if config.tier.is_some() { TIER } else { 0 };
    RESERVED + PER_WORKER * u64::from(config.threads_count) + tier
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;

    #[test]
    fn clients_and_workers_take_files() {
        let config = Config {
            clients_max: 100,
            threads_count: 2,
            ..Settings::default().config()
        };
        assert_eq!(wanted(&config), 148);
        assert_eq!(clients_in(148, &config), 100);
        assert_eq!(clients_in(3, &config), 0);
    }

    #[test]
    fn a_tier_takes_what_there_are_files_for() {
        let config = Settings::default().config();
        let segment_bytes = 1 << 20;
        assert_eq!(make_room_for_tier(&config, 5 << 20, segment_bytes), 5 << 20);
        let most = make_room_for_tier(&config, u64::MAX / 2, segment_bytes);
        assert!((TIER / PER_SEGMENT - SPARE_SEGMENTS) * segment_bytes <= most);
        assert!(most < u64::MAX / 2, "{most}");
    }

    #[test]
    fn more_clients_than_any_system_takes_are_refused_or_fewer() {
        let config = Config {
            clients_max: u32::MAX,
            ..Settings::default().config()
        };
        let reason = make_more_room(&config).unwrap_err().reason;
        assert!(reason.contains("try with "), "{reason}");
        let mut settings = Settings::default();
        settings.lower_clients_max(u32::MAX);
        make_room(&mut settings, &Log::new(Level::Nothing, None));
        let lowered = settings.config().clients_max;
        assert!(
            lowered < u32::MAX && reason.ends_with(&format!(" {lowered}")),
            "{lowered}"
        );
    }
}
