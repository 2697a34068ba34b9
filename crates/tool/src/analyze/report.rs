//! Sums as text, JSON and CSV; the page is in `html`.

use std::collections::HashMap;
use std::fmt::Write as _;

use base::memory_size::human;
use serde_json::{Value, json};

use super::tally::{Big, SPANS, Sum, Tally};
use super::writes::{Writes, Written};

/// Maximum number of bytes of a key that are shown.
const KEY_BYTES_SHOWN: usize = 60;
/// The row of keys whose prefixes exceeded the maximum number.
const LATE_PREFIXES: &str = "(of prefixes that came too late)";

pub(super) fn text(source: &str, tally: &Tally, prefixes: usize) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _written = writeln!(
        text,
        "{source}\n{} keys, {} ({} bytes)",
        tally.total.keys,
        human(tally.total.bytes),
        tally.total.bytes
    );
    for (title, rows) in sections(tally, prefixes) {
        table(&mut text, title, &rows, tally.total.bytes);
    }
    keys(&mut text, "BIGGEST KEYS", &tally.biggest());
    keys(&mut text, "MOST ELEMENTS", &tally.longest());
    if let Some(writes) = &tally.writes {
        written(&mut text, writes, prefixes);
    }
    text
}

/// Appends the sums of a log.
fn written(text: &mut String, writes: &Writes, prefixes: usize) {
    let _written = writeln!(
        text,
        "\nWRITTEN AFTER THAT: {} commands, {} ({} bytes), not counted above",
        writes.total.writes,
        human(writes.total.bytes),
        writes.total.bytes
    );
    for (title, rows) in written_sections(writes, prefixes) {
        let _written = writeln!(
            text,
            "\n{title:<34}{:>10}{:>12}{:>8}",
            "WRITES", "BYTES", "SHARE"
        );
        for (name, of) in rows {
            let _written = writeln!(
                text,
                "{:<34}{:>10}{:>12}{:>6.1} %",
                shortened(&name, 33),
                of.writes,
                human(of.bytes),
                percent(of.bytes, writes.total.bytes)
            );
        }
    }
}

/// Returns the sums of a log, each with a title and rows.
pub(super) fn written_sections(
    writes: &Writes,
    prefixes: usize,
) -> Vec<(&'static str, Vec<(String, Written)>)> {
    let commands = writes.commands().into_iter().take(prefixes);
    let commands = commands.map(|(name, of)| (name.escape_default().to_string(), of));
    let mut sections = vec![("COMMAND", commands.collect())];
    if writes.by_database.len() > 1 {
        let databases = writes.by_database.iter();
        let databases = databases.map(|(number, of)| (format!("db{number}"), *of));
        sections.push(("WRITTEN DATABASE", databases.collect()));
    }
    let named = writes.prefixes().into_iter().take(prefixes);
    let mut named: Vec<(String, Written)> = named
        .map(|(prefix, of)| (prefix_name(prefix), of))
        .collect();
    if writes.beyond.writes > 0 {
        named.push((LATE_PREFIXES.to_owned(), writes.beyond));
    }
    sections.push(("WRITTEN PREFIX", named));
    let most = writes.most_written().into_iter();
    let most = most.map(|((database, key), of)| (format!("db{database} {}", shown(key)), of));
    sections.push(("MOST WRITTEN", most.collect()));
    sections
}

/// Returns the sums by category, each with a title and rows.
pub(super) fn sections(tally: &Tally, prefixes: usize) -> Vec<(&'static str, Vec<(String, Sum)>)> {
    let types = tally.by_encoding.iter();
    let types = types.map(|((name, encoding), sum)| (format!("{name} ({encoding})"), *sum));
    let mut sections = vec![("TYPE", types.collect())];
    if tally.by_database.len() > 1 {
        let databases = tally.by_database.iter();
        let databases = databases.map(|(number, sum)| (format!("db{number}"), *sum));
        sections.push(("DATABASE", databases.collect()));
    }
    sections.push(("TIME TO LIVE", spans(tally)));
    let named = tally.prefixes();
    let named = named.iter().take(prefixes);
    let mut named: Vec<(String, Sum)> = named
        .map(|(prefix, sum)| (prefix_name(prefix), *sum))
        .collect();
    if tally.beyond.keys > 0 {
        named.push((LATE_PREFIXES.to_owned(), tally.beyond));
    }
    sections.push(("PREFIX", named));
    sections
}

fn table(text: &mut String, title: &str, rows: &[(String, Sum)], total: u64) {
    let _written = writeln!(
        text,
        "\n{title:<34}{:>10}{:>12}{:>8}{:>13}",
        "KEYS", "BYTES", "SHARE", "ELEMENTS"
    );
    for (name, sum) in rows {
        let _written = writeln!(
            text,
            "{:<34}{:>10}{:>12}{:>6.1} %{:>13}",
            shortened(name, 33),
            sum.keys,
            human(sum.bytes),
            percent(sum.bytes, total),
            sum.elements
        );
    }
}

fn keys(text: &mut String, title: &str, keys: &[Big]) {
    let _written = writeln!(text, "\n{title}");
    for big in keys {
        let _written = writeln!(
            text,
            "{:>10}{:>13} elements  {:<7} db{} {}",
            human(big.bytes),
            big.elements,
            big.type_name,
            big.database,
            shortened(&shown(&big.key), KEY_BYTES_SHOWN)
        );
    }
}

pub(super) fn shown(key: &[u8]) -> String {
    base::words::quote(key)
}

fn prefix_name(prefix: &[u8]) -> String {
    match prefix.is_empty() {
        true => "(none)".to_owned(),
        false => format!("{}*", prefix.escape_ascii()),
    }
}

fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters - 1).chain(['…']).collect(),
    }
}

fn spans(tally: &Tally) -> Vec<(String, Sum)> {
    let names = SPANS.iter().map(|(_, name)| *name).chain(["for ever"]);
    let rows = names.zip(tally.by_ttl).filter(|(_, sum)| sum.keys > 0);
    rows.map(|(name, sum)| (name.to_owned(), sum)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

pub(super) fn json(source: &str, tally: &Tally, prefixes: usize) -> String {
    let sums = |rows: Vec<(String, Sum)>| -> Vec<Value> {
        rows.into_iter()
            .map(|(name, sum)| sum_json(&name, &sum))
            .collect()
    };
    let types = tally
        .by_type
        .iter()
        .map(|(name, sum)| ((*name).to_owned(), *sum));
    let encodings = tally
        .by_encoding
        .iter()
        .map(|((name, encoding), sum)| (format!("{name}/{encoding}"), *sum));
    let databases = tally
        .by_database
        .iter()
        .map(|(number, sum)| (number.to_string(), *sum));
    let named = tally.prefixes();
    let named = named.iter().take(prefixes);
    let named = named.map(|(prefix, sum)| (String::from_utf8_lossy(prefix).into_owned(), *sum));
    let mut text = json!({
        "source": source,
        "keys": tally.total.keys,
        "bytes": tally.total.bytes,
        "types": sums(types.collect()),
        "encodings": sums(encodings.collect()),
        "databases": sums(databases.collect()),
        "ttl": sums(spans(tally)),
        "prefixes": sums(named.collect()),
        "prefixes_beyond": sum_json("", &tally.beyond),
        "biggest": tally.biggest().iter().map(big_json).collect::<Vec<_>>(),
        "most_elements": tally.longest().iter().map(big_json).collect::<Vec<_>>(),
        "written": tally.writes.as_ref().map(|writes| written_json(writes, prefixes)),
    })
    .to_string();
    text.push('\n');
    text
}

fn sum_json(name: &str, sum: &Sum) -> Value {
    json!({"name": name, "keys": sum.keys, "bytes": sum.bytes, "elements": sum.elements})
}

fn big_json(big: &Big) -> Value {
    json!({
        "key": String::from_utf8_lossy(&big.key),
        "database": big.database,
        "type": big.type_name,
        "bytes": big.bytes,
        "elements": big.elements,
    })
}

fn written_json(writes: &Writes, prefixes: usize) -> Value {
    let of =
        |name: &str, of: Written| json!({"name": name, "writes": of.writes, "bytes": of.bytes});
    let commands = writes.commands().into_iter();
    let named = writes.prefixes().into_iter().take(prefixes);
    let most = writes.most_written().into_iter();
    json!({
        "writes": writes.total.writes,
        "bytes": writes.total.bytes,
        "commands": commands.map(|(name, sum)| of(name, sum)).collect::<Vec<_>>(),
        "prefixes": named
            .map(|(prefix, sum)| of(&String::from_utf8_lossy(prefix), sum))
            .collect::<Vec<_>>(),
        "prefixes_beyond": of("", writes.beyond),
        "keys": most
            .map(|((database, key), sum)| json!({
                "key": String::from_utf8_lossy(key),
                "database": database,
                "writes": sum.writes,
                "bytes": sum.bytes,
            }))
            .collect::<Vec<_>>(),
    })
}

/// Returns one line per prefix: its keys, and its writes in a log.
pub(super) fn csv(tally: &Tally, prefixes: usize) -> String {
    let mut text = "prefix,keys,bytes,elements,writes,written_bytes\n".to_owned();
    let kept = tally.prefixes();
    let kept = &kept[..kept.len().min(prefixes)];
    let written = tally
        .writes
        .as_ref()
        .map(Writes::prefixes)
        .unwrap_or_default();
    let of_log: HashMap<&[u8], Written> = written.iter().copied().collect();
    let only_written = written
        .iter()
        .take(prefixes)
        .filter(|(prefix, _)| !kept.iter().any(|(own, _)| own == prefix))
        .map(|(prefix, _)| (*prefix, Sum::default()));
    for (prefix, sum) in kept.iter().copied().chain(only_written) {
        let name = String::from_utf8_lossy(prefix).replace('"', "\"\"");
        let written = of_log.get(prefix).copied().unwrap_or_default();
        let _written = writeln!(
            text,
            "\"{name}\",{},{},{},{},{}",
            sum.keys, sum.bytes, sum.elements, written.writes, written.bytes
        );
    }
    text
}
