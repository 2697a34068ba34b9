//! What the server says when it starts.
//!
//! On a terminal (or with `always-show-logo yes`) a small picture; in a log file or a container's
//! output one line with the same facts.

use std::io::{self, IsTerminal as _};

use crate::config::Config;
use crate::identity::{IOLITE_VERSION, REDIS_VERSION};
use crate::log::Log;

const GEM: [&str; 6] = [
    r"    _________    ",
    r"   / \ / \ / \   ",
    r"  /___V___V___\  ",
    r"   \  \   /  /   ",
    r"     \ \ / /     ",
    r"       \V/       ",
];

/// Says where the server listens (`addresses`, as people write them) and with how many workers.
pub fn announce(log: &Log, config: &Config, addresses: &[String]) {
    let on_terminal = log.is_on_standard_output() && io::stdout().is_terminal();
    if on_terminal || config.always_show_logo {
        log.raw(&picture(config, addresses));
    } else {
        log.notice(format_args!(
            "Iolite {IOLITE_VERSION} at the level of Redis {REDIS_VERSION}: listens on {}, \
             {} workers, pid {}",
            listed(addresses),
            config.threads_count,
            std::process::id()
        ));
    }
}

fn picture(config: &Config, addresses: &[String]) -> String {
    let facts = [
        String::new(),
        format!("Iolite {IOLITE_VERSION}, at the level of Redis {REDIS_VERSION}"),
        format!("listens on  {}", listed(addresses)),
        format!("workers     {}", config.threads_count),
        format!("process     {}", std::process::id()),
        String::new(),
    ];
    let lines = GEM.iter().zip(&facts);
    let lines = lines.map(|(gem, fact)| format!("{gem}  {fact}").trim_end().to_owned() + "\n");
    format!("\n{}\n", lines.collect::<String>())
}

fn listed(addresses: &[String]) -> String {
    match addresses {
        [] => "nothing".to_owned(),
        addresses => addresses.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn the_picture_shows_addresses_and_workers() {
        let config = Config {
            threads_count: 3,
            ..Settings::default().config()
        };
        let addresses = ["127.0.0.1:6379".to_owned(), "/tmp/iolite.sock".to_owned()];
        let picture = picture(&config, &addresses);
        assert!(
            picture.contains("listens on  127.0.0.1:6379, /tmp/iolite.sock\n"),
            "{picture}"
        );
        assert!(picture.contains("workers     3\n"), "{picture}");
        assert!(picture.lines().all(|line| line == line.trim_end()));
    }
}
