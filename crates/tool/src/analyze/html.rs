//! Sums as one self-contained page without scripts, to be kept or sent.
//!
//! Keys are untrusted bytes: everything that does not come from this file goes through [`escaped`].

use std::fmt::Write as _;

use base::memory_size::human;

use super::report::{percent, sections, shown, written_sections};
use super::tally::{Big, Sum, Tally};
use super::writes::Writes;

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<title>What takes the memory</title>
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; margin: 2rem 0 .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
td.bar { width: 9rem; } td.bar svg { display: block; width: 8rem; height: .7rem; }
rect { fill: #2a78c2; } rect.all { fill: #8883; }
</style></head><body>
";

/// Returns the page.
pub(super) fn page(source: &str, tally: &Tally, prefixes: usize) -> String {
    let mut text = HEAD.to_owned();
    let total = tally.total;
    // Writing to a string does not fail.
    let _written = writeln!(
        text,
        "<h1>{}</h1>\n<p>{} keys, {} ({} bytes)</p>",
        escaped(source),
        total.keys,
        escaped(&human(total.bytes)),
        total.bytes
    );
    for (title, rows) in sections(tally, prefixes) {
        table(&mut text, title, &rows, total.bytes);
    }
    keys(&mut text, "BIGGEST KEYS", &tally.biggest());
    keys(&mut text, "MOST ELEMENTS", &tally.longest());
    if let Some(writes) = &tally.writes {
        written(&mut text, writes, prefixes);
    }
    text.push_str("</body></html>\n");
    text
}

/// Appends the sums of a log.
fn written(text: &mut String, writes: &Writes, prefixes: usize) {
    let total = writes.total;
    let _written = writeln!(
        text,
        "<p>Written after that: {} commands, {} ({} bytes), not counted above</p>",
        total.writes,
        escaped(&human(total.bytes)),
        total.bytes
    );
    for (title, rows) in written_sections(writes, prefixes) {
        begin(text, title, &["Name", "Writes", "Bytes", "Share"]);
        for (name, of) in &rows {
            let _written = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td></tr>",
                escaped(&shortened(name)),
                of.writes,
                escaped(&human(of.bytes)),
                percent(of.bytes, total.bytes)
            );
        }
        text.push_str("</table></div>\n");
    }
}

fn begin(text: &mut String, title: &str, columns: &[&str]) {
    let _written = write!(
        text,
        "<h2>{}</h2>\n<div class=\"scroll\"><table><tr>",
        capitalised(title)
    );
    for column in columns {
        let _written = write!(text, "<th>{column}</th>");
    }
    text.push_str("</tr>\n");
}

fn table(text: &mut String, title: &str, rows: &[(String, Sum)], total: u64) {
    begin(
        text,
        title,
        &["Name", "Keys", "Bytes", "Share", "", "Elements"],
    );
    for (name, sum) in rows {
        let share = percent(sum.bytes, total);
        let _written = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{share:.1} %</td><td class=\"bar\">\
             <svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{share:.1} %\">\
             <rect class=\"all\" width=\"100\" height=\"10\"/><rect width=\"{share:.1}\" height=\"10\"/></svg>\
             </td><td>{}</td></tr>",
            escaped(name),
            sum.keys,
            escaped(&human(sum.bytes)),
            sum.elements
        );
    }
    text.push_str("</table></div>\n");
}

fn keys(text: &mut String, title: &str, keys: &[Big]) {
    begin(
        text,
        title,
        &["Key", "Type", "Database", "Bytes", "Elements"],
    );
    for big in keys {
        let _written = writeln!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&shortened(&shown(&big.key))),
            escaped(big.type_name),
            big.database,
            escaped(&human(big.bytes)),
            big.elements
        );
    }
    text.push_str("</table></div>\n");
}

/// Maximum number of characters of a key that are shown.
const KEY_CHARACTERS_SHOWN: usize = 200;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(KEY_CHARACTERS_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn capitalised(title: &str) -> String {
    let (first, rest) = title.split_at(title.len().min(1));
    format!("{first}{}", rest.to_ascii_lowercase())
}

/// Escapes a text so that nothing in it is markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tally::{Rules, Seen};
    use super::*;

    #[test]
    fn a_key_is_no_markup() {
        let mut tally = Tally::new(Rules {
            top: 10,
            depth: 1,
            delimiter: b":".to_vec(),
        });
        for key in [
            &b"<script>alert(1)</script>:a"[..],
            b"\"><img src=x>:b",
            b"\xff:c",
        ] {
            tally.add(&Seen {
                database: 0,
                key,
                type_name: "string",
                encoding: "raw",
                bytes: 100,
                elements: 1,
                ttl_ms: None,
            });
        }
        tally.writes().begin();
        for part in [&b"<i>SET"[..], b"<script>:x", b"v"] {
            tally.writes().part(part, 1);
        }
        tally.writes().end();
        let page = page("<b>dump.rdb", &tally, 20);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>"));
        assert!(page.contains("&lt;I&gt;SET") && !page.contains("<I>"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(page.contains("<p>3 keys, ") && page.ends_with("</body></html>\n"));
        assert!(!page.contains("http://") && !page.contains("https://"));
    }
}
