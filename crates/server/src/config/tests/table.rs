//! Checks of the table as a whole.

use std::collections::HashSet;

use super::super::directive::{ChangeRule, Standing};
use super::super::directives;
use super::super::settings::default_of;
use super::super::value::Gathering;
use super::super::{ClientsMemory, EvictionPolicy, OutputLimit, Permission, Settings, Supervised};
use super::load;
use crate::log::Level;
use base::words;

#[test]
fn every_name_is_in_lower_case_and_stands_once() {
    let mut seen = HashSet::new();
    for row in directives::all() {
        for name in row.names() {
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(seen.insert(name), "{name} stands twice");
        }
    }
}

#[test]
fn every_default_is_written_as_it_is_shown() {
    for row in directives::all() {
        if ["threads", "dir"].contains(&row.name) {
            continue; // The machine decides.
        }
        let shown = row.kind.show(&default_of(row));
        assert_eq!(String::from_utf8_lossy(&shown), row.default, "{}", row.name);
    }
}

#[test]
fn every_default_survives_a_file() {
    for (at, row) in directives::all().iter().enumerate() {
        let default = default_of(row);
        let mut settings = Settings::default();
        let mut gathering = Gathering::Anew;
        for line in row.kind.write(&default) {
            let line = words::split(&line).unwrap();
            settings.assign(at, &line, gathering).unwrap();
            gathering = Gathering::Onto;
        }
        assert_eq!(*settings.value(at), default, "{}", row.name);
        assert_eq!(row.check_standing(&default), Ok(()), "{}", row.name);
    }
}

#[test]
fn every_row_without_effect_says_why_and_none_is_about_what_users_would_miss() {
    let about = [
        "appendonly",
        "save",
        "requirepass",
        "tls-port",
        "aclfile",
        "maxmemory",
    ];
    for row in directives::all() {
        if let Standing::WithoutEffect { reason } = row.standing {
            assert!(reason.len() > 10 && !reason.ends_with('.'), "{}", row.name);
            assert!(!about.contains(&row.name), "{}", row.name);
            assert!(!row.is_secret, "{}", row.name);
        }
    }
}

#[test]
fn values_that_later_rows_allow_are_values_of_their_kind() {
    for (at, row) in directives::all().iter().enumerate() {
        let Standing::Fixed { also, .. } = row.standing else {
            continue;
        };
        for text in also {
            let words = words::split(text.as_bytes()).unwrap();
            let words = match words.as_slice() {
                [] => vec![Vec::new()],
                _ => words,
            };
            let mut settings = Settings::default();
            settings.assign(at, &words, Gathering::Anew).unwrap();
            assert_eq!(
                row.check_standing(settings.value(at)),
                Ok(()),
                "{} {text}",
                row.name
            );
        }
    }
}

#[test]
fn what_cannot_change_while_running_is_as_in_redis() {
    let changeable = |name: &str| {
        let (_, row, _) = directives::find(name.as_bytes()).unwrap();
        row.change
    };
    for name in [
        "databases",
        "logfile",
        "io-threads",
        "unixsocket",
        "enable-debug-command",
    ] {
        assert_eq!(changeable(name), ChangeRule::AtStart, "{name}");
    }
    for name in ["dir", "dbfilename"] {
        assert_eq!(changeable(name), ChangeRule::Protected, "{name}");
    }
    for name in ["port", "bind", "maxclients", "maxmemory", "requirepass"] {
        assert_eq!(changeable(name), ChangeRule::Always, "{name}");
    }
}

#[test]
fn the_typed_view_shows_the_defaults() {
    let config = Settings::default().config();
    assert_eq!(config.port, 6379);
    assert_eq!(config.clients_max, 10_000);
    assert_eq!(config.databases_count, 16);
    assert_eq!(config.bulk_bytes_max, 512 << 20);
    let defaults = engine::Threshold::ALL.map(|(.., default)| default);
    assert_eq!(config.thresholds, defaults);
    assert_eq!(config.query_buffer_bytes_max, 1 << 30);
    assert_eq!(config.eviction_policy, EvictionPolicy::NoEviction);
    assert_eq!(config.clients_memory, ClientsMemory::Unlimited);
    assert_eq!(config.log_level, Level::Notice);
    assert_eq!(config.supervised, Supervised::No);
    assert_eq!(config.password, None);
    assert!(config.protected_mode && !config.daemonize && config.threads_count > 0);
    let hosts: Vec<(&str, bool)> = config
        .bind
        .iter()
        .map(|address| (address.host.as_str(), address.optional))
        .collect();
    assert_eq!(hosts, [("127.0.0.1", false), ("::1", true)]);
    let (normal, pubsub) = (config.output_limits.normal, config.output_limits.pubsub);
    assert_eq!(normal, OutputLimit::default());
    assert_eq!(
        (pubsub.hard_bytes, pubsub.soft_bytes, pubsub.soft_s),
        (32 << 20, 8 << 20, 60)
    );
}

#[test]
fn the_typed_view_shows_what_a_file_says() {
    let config = load(
        "port 0\n\
         unixsocket /tmp/iolite.sock\n\
         unixsocketperm 755\n\
         bind 127.0.0.1 -::1\n\
         maxmemory 2gb\n\
         maxmemory-policy VOLATILE-ttl\n\
         maxmemory-clients 5%\n\
         requirepass \"s p a c e\"\n\
         io-threads 4\n\
         hz 9999\n\
         supervised systemd\n\
         loglevel verbose\n\
         enable-debug-command local\n\
         client-output-buffer-limit normal 1mb 2kb 3 replica 0 0 0\n",
    )
    .unwrap()
    .config();
    assert_eq!(config.port, 0);
    assert_eq!(
        config.unix_socket.unwrap().to_str(),
        Some("/tmp/iolite.sock")
    );
    assert_eq!(config.unix_socket_mode, 0o755);
    assert_eq!(
        (config.bind[1].host.as_str(), config.bind[1].optional),
        ("::1", true)
    );
    assert_eq!(config.memory_bytes_max, 2 << 30);
    assert_eq!(config.eviction_policy, EvictionPolicy::VolatileTtl);
    assert_eq!(config.clients_memory, ClientsMemory::Percent(5));
    assert_eq!(config.password.as_deref(), Some(b"s p a c e".as_slice()));
    assert_eq!(config.threads_count, 4);
    assert_eq!(config.hz, 500);
    assert_eq!(config.supervised, Supervised::Systemd);
    assert_eq!(config.log_level, Level::Verbose);
    assert_eq!(config.debug_command, Permission::Local);
    assert!(config.debug_command.includes(true) && !config.debug_command.includes(false));
    let limit = config.output_limits.normal;
    assert_eq!(
        (limit.hard_bytes, limit.soft_bytes, limit.soft_s),
        (1 << 20, 2048, 3)
    );
    assert_eq!(config.output_limits.replica, OutputLimit::default());
    assert_eq!(config.output_limits.pubsub.soft_s, 60);
}
