//! Start message for people in a terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use reactor::Endpoint;

use crate::config::Config;
use crate::identity;
use crate::node::Node;

/// Prints the addresses of the server and the number of workers to a terminal that also shows the
/// log, or to any output if `always-show-logo` asks for it.
#[allow(clippy::print_stdout, reason = "this is for the terminal")]
pub fn show(node: &Node, config: &Config, endpoints: &[Endpoint]) {
    let is_watched = config.log_file.is_none() && io::stdout().is_terminal();
    if !config.daemonize && (is_watched || config.always_show_logo) {
        print!(
            "{}",
            text(endpoints, node.workers().len(), &node.process.run_id)
        );
    }
}

/// Writes the same in words to the log.
pub fn log(node: &Node, endpoints: &[Endpoint]) {
    let workers = node.workers().len();
    for endpoint in endpoints {
        if let Some(place) = place(endpoint) {
            node.core
                .log
                .notice(format_args!("Listening on {place}, workers: {workers}"));
        }
    }
}

fn place(endpoint: &Endpoint) -> Option<String> {
    match endpoint {
        Endpoint::Tcp(address) => Some(address.to_string()),
        Endpoint::Unix(path) => Some(path.display().to_string()),
        Endpoint::InProcess => None,
    }
}

fn text(endpoints: &[Endpoint], workers: usize, run_id: &str) -> String {
    let plural = if workers == 1 { "" } else { "s" };
    let mut lines = vec![
        format!(
            "Iolite {} (Redis {} commands)",
            identity::IOLITE_VERSION,
            identity::redis_version()
        ),
        format!(
            "{workers} worker{plural}, process {}, run {}",
            std::process::id(),
            &run_id[..8]
        ),
    ];
    let places = endpoints.iter().filter_map(place);
    lines.extend(places.map(|place| format!("listening on {place}")));
    let mut text = String::from("\n");
    for index in 0..lines.len().max(GEM.len()) {
        let gem = GEM.get(index).copied().unwrap_or("");
        let line = lines.get(index).map_or("", String::as_str);
        let _ = writeln!(text, "  {gem:<12}{line}");
    }
    text.push('\n');
    text
}

const GEM: [&str; 4] = [r"  ____", r" /\__/\", r"/_/  \_\", r"\_\__/_/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_with_how_many() {
        let endpoint = Endpoint::Tcp("127.0.0.1:6379".parse().expect("an address"));
        let shown = text(&[endpoint], 2, "0123456789");
        assert!(shown.contains("listening on 127.0.0.1:6379"), "{shown}");
        assert!(shown.contains("2 workers"), "{shown}");
    }
}
