//! Room for clients: each one is an open file, and the system limits those.

use std::io;

use base::process;

use crate::config::{ApplyError, Config, Settings, system_reason};
use crate::log::Log;

/// Files that are no clients: logs, files being written, libraries' own.
const RESERVED: u64 = 32;
/// Files of one worker: its event loop, its wake-up, its listeners.
const PER_WORKER: u64 = 8;

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

/// Open files that the clients and workers of `config` take.
fn wanted(config: &Config) -> u64 {
    u64::from(config.clients_max) + others(config)
}

/// Clients there is room for among `files`.
fn clients_in(files: u64, config: &Config) -> u32 {
    let room = files.saturating_sub(others(config));
    u32::try_from(room).unwrap_or(u32::MAX)
}

fn others(config: &Config) -> u64 {
    RESERVED + PER_WORKER * u64::from(config.threads_count)
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
