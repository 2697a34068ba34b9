//! The list of all statistics for readers, `docs/reference/statistics.md`, matches the table.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Item, Kind, SECTIONS};

const HEAD: &str = "\
# Statistics

Generated from the table of statistics by
`cargo test -p server write_the_statistics -- --ignored`; a test fails when it is out of date.

Each value is one row of one table, and every view shows it under its own name: *INFO* by the command of that name,
*metric* at [`/metrics`](console.md) in the text formats of Prometheus and OpenMetrics, *OpenTelemetry* where metrics are
[pushed](console.md#opentelemetry). Names of metrics that begin with `redis_` are those of redis_exporter, with its kinds and
labels, so that dashboards and alerts for it work as they are; what it does not have is called `iolite_`. Counters begin at 0 with
the process and with CONFIG RESETSTAT. No label holds a key, a user or the address of a client.
";

#[test]
fn the_reference_lists_the_table() {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        text == reference(),
        "out of date: cargo test -p server write_the_statistics -- --ignored"
    );
}

#[test]
#[ignore = "writes into the source tree"]
fn write_the_statistics() {
    std::fs::write(path(), reference()).unwrap();
}

fn path() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/reference/statistics.md")
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS.iter().filter(|section| !section.items.is_empty()) {
        let name = section.name;
        write!(text, "\n## {name}\n").unwrap();
        write_rows(&mut text, section.items);
        for item in section.items {
            if let Item::Family(family) = item {
                write_family(&mut text, family);
            }
        }
    }
    text
}

fn write_rows(text: &mut String, items: &[Item]) {
    let rows = items.iter().filter_map(|item| match item {
        Item::Row(row) => Some(row),
        Item::Family(_) => None,
    });
    for (number, row) in rows.enumerate() {
        if number == 0 {
            text.push_str("\n| INFO | Metric | OpenTelemetry | Kind | Unit | What it is |\n|---|---|---|---|---|---|\n");
        }
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "words",
        };
        let code = |name: &str| {
            if name.is_empty() {
                String::new()
            } else {
                format!("`{name}`")
            }
        };
        let (info, metric) = (code(row.info), code(row.metric));
        let otel = code(&row.otel().unwrap_or_default());
        let (unit, help) = (row.unit.name(), row.help);
        writeln!(
            text,
            "| {info} | {metric} | {otel} | {kind} | {unit} | {help} |"
        )
        .unwrap();
    }
}

fn write_family(text: &mut String, family: &super::Family) {
    if family.info.is_empty() {
        writeln!(text, "\n{}", family.help).unwrap();
    } else {
        writeln!(text, "\n`{}`: {}", family.info, family.help).unwrap();
    }
    text.push_str("\n| Metric | Kind | Labels | What it is |\n|---|---|---|---|\n");
    for one in family.described {
        let (metric, kind, labels, help) = (one.metric, one.kind, one.labels, one.help);
        writeln!(text, "| `{metric}` | {kind} | {labels} | {help} |").unwrap();
    }
}
