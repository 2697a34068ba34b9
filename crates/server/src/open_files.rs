//! Room for clients, and for the segments of a tier: they are open files, and the system limits those.

use std::io;

use base::process;

use crate::config::{ApplyError, Config, Settings, system_reason};
use crate::log::Log;

/// Files that are no clients: logs, files being written, libraries' own.
const RESERVED: u64 = 32;
/// Files of one worker: its event loop, its wake-up, its listeners.
const PER_WORKER: u64 = 8;
/// Files that a tier has in any case.
const TIER: u64 = 64;
/// Files of a segment of a tier: one through the system's cache, and one past it.
const PER_SEGMENT: u64 = 2;
/// Segments beyond those that are full: being written, and being written together.
const SPARE_SEGMENTS: u64 = 8;

/// Makes room for `maxclients` at start. Where the system does not give it, `maxclients` becomes
/// what there is room for, and the log says so.
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

/// Makes room for a new `maxclients`.
///
/// # Errors
/// [`ApplyError`] with the number of clients there is room for.
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

/// Makes room for the segments of a tier, beside the clients. Returns how many bytes it may take: `bytes_max`, or what there
/// is room for.
pub(crate) fn make_room_for_tier(config: &Config, bytes_max: u64, segment_bytes: u64) -> u64 {
    let segment_bytes = segment_bytes.max(1);
    let segments = bytes_max.div_ceil(segment_bytes) + SPARE_SEGMENTS;
    let more = segments.saturating_mul(PER_SEGMENT).saturating_sub(TIER);
    let Ok(files) = process::raise_open_files(wanted(config).saturating_add(more)) else {
        // It was told when there was to be room for clients.
        return bytes_max;
    };
    let files = TIER + files.now.saturating_sub(wanted(config)).min(more);
    let segments = (files / PER_SEGMENT).saturating_sub(SPARE_SEGMENTS);
    bytes_max.min(segments.saturating_mul(segment_bytes))
}

/// Open files that the clients and workers of `config` take, and a tier in any case.
fn wanted(config: &Config) -> u64 {
    u64::from(config.clients_max) + others(config)
}

/// Clients there is room for among `files`.
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
