//! The table of statistics. Each value that the server reports is one row here. INFO, `/metrics`,
//! `/info.json`, the event stream, OpenTelemetry and the reference page are views of it.
//!
//! A row is read from a [`Sample`]: the state of the server at one moment, taken without a lock
//! that a worker takes. Something with several values (commands, databases, replicas) is a
//! [`Family`](row::Family): one line of INFO per name, one series of metrics per set of labels.

mod clients;
mod commands;
mod cpu;
mod debug;
mod families;
mod keys;
mod keyspace;
mod memory;
pub(crate) mod metrics;
mod only_metrics;
mod persistence;
#[cfg(test)]
mod reference;
mod row;
mod sample;
mod server;
mod stats;
#[cfg(test)]
mod tests;
mod tier;

use std::fmt::Write as _;

use base::metrics::Metric;
use store::Handle;

use crate::node::Node;
pub(crate) use row::Item;
#[cfg(test)]
pub(crate) use row::{Family, Row};
#[cfg(feature = "http")]
pub(crate) use row::{Kind, Value};
pub(crate) use sample::Sample;
pub(crate) use tier::status as tier_status;

/// When a section is shown, besides on request by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// By INFO without arguments.
    ByDefault,
    /// By INFO ALL.
    WithAll,
    /// Only by name: tools know no such section.
    ByName,
    /// Only in metrics: INFO has no such lines.
    InMetrics,
}

/// A section: its name, when INFO shows it, and its values in order.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    shown: Shown,
    pub(crate) items: &'static [Item],
}

const fn section(name: &'static str, shown: Shown, items: &'static [Item]) -> Section {
    Section { name, shown, items }
}

/// The table, in the order of INFO.
pub(crate) const SECTIONS: &[Section] = &[
    section("Server", Shown::ByDefault, server::ITEMS),
    section("Clients", Shown::ByDefault, clients::ITEMS),
    section("Memory", Shown::ByDefault, memory::ITEMS),
    section("Persistence", Shown::ByDefault, persistence::ITEMS),
    section("Stats", Shown::ByDefault, stats::ITEMS),
    section("Replication", Shown::ByDefault, families::REPLICATION),
    section("CPU", Shown::ByDefault, cpu::ITEMS),
    section("Modules", Shown::ByDefault, &[]),
    section("Commandstats", Shown::WithAll, commands::CALLS),
    section("Errorstats", Shown::ByDefault, commands::ERRORS),
    section("Latencystats", Shown::WithAll, commands::LATENCIES),
    section("Debug", Shown::ByName, debug::ITEMS),
    section("Hotkeys", Shown::ByName, keys::ITEMS),
    section("TLS", Shown::ByName, families::TLS),
    section("Tier", Shown::ByName, tier::ITEMS),
    section("Cluster", Shown::ByDefault, families::CLUSTER),
    section("Keyspace", Shown::ByDefault, keyspace::ITEMS),
    section("Metrics", Shown::InMetrics, only_metrics::ITEMS),
];

/// Returns the text of the sections that `asked` names in lower case; if it is empty, of the
/// default ones.
#[must_use]
pub fn info(node: &Node, store: &mut Handle, asked: &[String]) -> String {
    let sample = Sample::take(node, store);
    let mut text = String::new();
    for section in asked_sections(asked) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {}\r\n", section.name);
        section.lines(&sample, &mut |name, value| {
            let _ = write!(text, "{name}:{value}\r\n");
        });
    }
    text
}

/// Returns the requested sections, in their order.
pub(crate) fn asked_sections(asked: &[String]) -> impl Iterator<Item = &'static Section> {
    let all = SECTIONS.iter();
    all.filter(move |section| is_asked(section, asked))
}

impl Section {
    /// Returns the number in a line of the section, if it is one that can be drawn.
    #[cfg(feature = "http")]
    pub(crate) fn number(&self, name: &str, text: &str) -> Option<f64> {
        let row = self.items.iter().find_map(|item| match item {
            Item::Row(row) if row.info == name => Some(row),
            _ => None,
        });
        match row {
            Some(row) if row.kind == Kind::Info => None,
            _ => Value::Text(text.trim_end_matches('%').to_owned()).number(),
        }
    }

    /// Passes every line of the section in INFO to `show`.
    pub(crate) fn lines(&self, sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
        for item in self.items {
            match item {
                Item::Row(row) => {
                    if let Some(text) = (row.read)(sample).text() {
                        show(row.info, &text);
                    }
                }
                Item::Family(family) => (family.lines)(sample, show),
            }
        }
    }
}

/// Returns all metrics of a moment.
#[cfg_attr(
    not(any(feature = "http", test)),
    allow(dead_code, reason = "nobody asks")
)]
pub(crate) fn all_metrics(sample: &Sample<'_>) -> Vec<Metric> {
    let mut all = Vec::with_capacity(256);
    for item in SECTIONS.iter().flat_map(|section| section.items) {
        match item {
            Item::Row(row) => all.extend(metrics::of_row(row, sample)),
            Item::Family(family) => (family.metrics)(sample, &mut all),
        }
    }
    all.retain(|metric| !metric.series.is_empty());
    all
}

fn is_asked(section: &Section, asked: &[String]) -> bool {
    if section.shown == Shown::InMetrics {
        return false;
    }
    if asked.is_empty() {
        return section.shown == Shown::ByDefault;
    }
    asked.iter().any(|name| match name.as_str() {
        "all" | "everything" => section.shown != Shown::ByName,
        "default" => section.shown == Shown::ByDefault,
        name => section.name.eq_ignore_ascii_case(name),
    })
}
