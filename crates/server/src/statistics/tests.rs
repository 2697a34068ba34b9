//! The table is complete, and INFO is the same as before there was a table.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::ManualClock;
use store::{Options, Store};

use super::metrics::MetricKind;
use super::{Item, SECTIONS, Sample};
use crate::config::{Loader, Origin, SharedConfig};
use crate::node::Node;

fn node() -> Node {
    let store = Store::new(&Options { databases: 16 }).unwrap();
    let settings = Loader::new().finish().unwrap().settings;
    let config = SharedConfig::new(settings, Origin::default());
    let clock = ManualClock::at_unix_ms(1_800_000_000_000);
    Node::new(testkit::table(), store, Arc::new(config), Arc::new(clock))
}

/// Returns every name of rows and families, with its help.
fn names(of: fn(&super::Row) -> String) -> Vec<(String, &'static str)> {
    let items = SECTIONS.iter().flat_map(|section| section.items);
    let rows = items.filter_map(|item| match item {
        Item::Row(row) => Some((of(row), row.help)),
        Item::Family(_) => None,
    });
    rows.collect()
}

fn described() -> impl Iterator<Item = &'static super::row::Described> {
    let items = SECTIONS.iter().flat_map(|section| section.items);
    let families = items.filter_map(|item| match item {
        Item::Row(_) => None,
        Item::Family(family) => Some(family.described),
    });
    families.flatten()
}

#[test]
fn every_row_has_help_and_a_name_of_its_own() {
    let metric_names = names(|row| row.metric.to_owned()).into_iter();
    let family_names = described().map(|one| (one.metric.to_owned(), one.help));
    let all_metrics: Vec<_> = metric_names.chain(family_names).collect();
    let otel_names = names(|row| row.otel().unwrap_or_default());
    for all in [names(|row| row.info.to_owned()), all_metrics, otel_names] {
        let mut seen = BTreeSet::new();
        for (name, help) in all {
            assert!(help.len() > 2 && help.ends_with('.'), "{name} has no help");
            assert!(
                name.is_empty() || seen.insert(name.clone()),
                "{name} is there twice"
            );
        }
        assert!(seen.len() > 100);
    }
}

#[test]
fn names_of_metrics_are_well_formed() {
    let own = names(|row| row.metric.to_owned());
    let all = own.iter().map(|(name, _)| name.as_str());
    for name in all.chain(described().map(|one| one.metric)) {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(is_good), "{name}");
        assert!(
            name.is_empty() || name.starts_with("redis_") || name.starts_with("iolite_"),
            "{name}"
        );
    }
}

/// The served metrics are the listed ones, with their kinds and labels.
#[test]
fn metrics_are_those_that_the_table_lists() {
    let node = node();
    let mut store = node.core.store.handle();
    let sample = Sample::take(&node, &mut store);
    let listed = names(|row| row.metric.to_owned());
    let mut seen = 0;
    for metric in super::all_metrics(&sample) {
        let in_family = described().find(|one| one.metric == metric.name);
        let in_rows = listed.iter().any(|(name, _)| name == metric.name);
        assert!(
            in_rows || in_family.is_some(),
            "{} is not listed",
            metric.name
        );
        if let Some(one) = in_family {
            assert_eq!(metric.kind.name(), one.kind, "{}", metric.name);
            for series in &metric.series {
                let labels: Vec<&str> = series.labels.iter().map(|(name, _)| *name).collect();
                let plain = metric.kind == MetricKind::Gauge || metric.kind == MetricKind::Counter;
                assert!(!plain || labels.join(", ") == one.labels, "{}", metric.name);
            }
        }
        seen += 1;
    }
    assert!(seen > 190, "{seen}");
}

/// Names, order and forms of INFO are unchanged: `info.golden` was written by the code without a
/// table.
#[test]
fn info_is_as_it_was() {
    let node = node();
    let mut store = node.core.store.handle();
    let asked = ["default", "debug", "tls", "hotkeys"].map(str::to_owned);
    let text = super::info(&node, &mut store, &asked);
    let shown: Vec<String> = text.split("\r\n").map(form).collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/statistics/info.golden");
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(shown.join("\n").trim_end(), golden.trim_end());
}

/// Lines that depend on the machine or the build.
const VARIES: [&str; 9] = [
    "executable",
    "config_file",
    "os",
    "run_id",
    "redis_build_id",
    "master_replid",
    "mem_allocator",
    "process_supervised",
    "redis_version",
];

/// Returns a line with every number replaced by zeros, with as many digits after the point.
fn form(line: &str) -> String {
    let Some((name, value)) = line.split_once(':') else {
        return line.to_owned();
    };
    if VARIES.contains(&name) {
        return format!("{name}:<varies>");
    }
    if name.ends_with("_human") {
        return format!("{name}:<size>");
    }
    let mut shown = String::new();
    let (mut in_fraction, mut last_was_digit) = (false, false);
    for letter in value.chars() {
        if letter.is_ascii_digit() {
            if in_fraction || !last_was_digit {
                shown.push('0');
            }
        } else {
            in_fraction = letter == '.' && last_was_digit;
            shown.push(letter);
        }
        last_was_digit = letter.is_ascii_digit();
    }
    format!("{name}:{shown}")
}
