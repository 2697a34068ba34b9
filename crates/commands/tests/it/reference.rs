//! The pages of all commands for readers, `docs/reference/commands/`, are generated from the table.
//! Their examples are from the transcripts, which the tests run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use engine::spec::{CommandSpec, categories_of};

use crate::transcripts::{family, path};

/// Maximum number of requests in an example.
const REQUESTS_MAX: usize = 8;
/// Maximum number of successful calls of the command itself.
const CALLS_MAX: usize = 3;
/// Length at which lines are cut.
const LINE_CHARS_MAX: usize = 120;

const HEAD: &str = "\
# Commands

Generated from the table of commands by `cargo test -p commands write_the_commands -- --ignored`; a test fails when it is
out of date. What differs from Redis stands in [compatibility](../compatibility.md), what an error means in
[errors](errors.md).

Each command has its arguments, the version of Redis (or of the server that is named) that had it first, what it costs, and the
categories by which users are allowed or denied it. Examples are the beginning of the command's transcript, which is run against
this server and, where Redis knows the command, against Redis: requests after `>`, replies as `+status`, `-error`, `:number`,
`\"text\"`, `[list]`, `%{map}`; `<…>` and `*` stand for what differs from run to run.
";

/// Families in the order of the pages, with titles.
const FAMILIES: [(&str, &str); 17] = [
    ("generic", "Keys"),
    ("strings", "Strings"),
    ("bitmaps", "Bitmaps"),
    ("hashes", "Hashes"),
    ("lists", "Lists"),
    ("sets", "Sets"),
    ("sorted_sets", "Sorted sets"),
    ("streams", "Streams"),
    ("geo", "Places on earth"),
    ("hyperloglog", "HyperLogLog"),
    ("pubsub", "Publish and subscribe"),
    ("transactions", "Transactions"),
    ("scripting", "Scripts and functions"),
    ("connection", "Connection"),
    ("acl", "Users"),
    ("server", "Server"),
    ("cluster", "Cluster"),
];

#[test]
fn the_reference_lists_the_table() {
    for (path, text) in pages() {
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == text,
            "{} is out of date: cargo test -p commands write_the_commands -- --ignored",
            path.display()
        );
    }
}

#[test]
#[ignore = "writes into the source tree"]
fn write_the_commands() {
    for (path, text) in pages() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut families: BTreeMap<&str, Vec<&CommandSpec>> = BTreeMap::new();
    for spec in testkit::table().commands() {
        families.entry(family(spec)).or_default().push(spec);
    }
    let mut index = HEAD.to_owned();
    let mut pages = Vec::new();
    for (name, title) in FAMILIES {
        let mut specs = families.remove(name).unwrap_or_default();
        specs.sort_by_key(|spec| spec.name);
        let file = name.replace('_', "-");
        write!(
            index,
            "\n## [{title}](commands/{file}.md)\n\n| Command | What it does |\n|---|---|\n"
        )
        .unwrap();
        let mut page = format!("# {title}\n\n[All commands](../commands.md)\n");
        for spec in specs {
            let (slug, summary) = (spec.name.to_lowercase(), cell(spec.summary));
            let name = spec.name;
            writeln!(
                index,
                "| [`{name}`](commands/{file}.md#{slug}) | {summary} |"
            )
            .unwrap();
            describe(&mut page, spec, None);
            for row in spec.subcommands {
                describe(&mut page, row, Some(spec));
            }
        }
        pages.push((root().join("commands").join(format!("{file}.md")), page));
    }
    assert!(families.is_empty(), "no page for {:?}", families.keys());
    pages.push((root().join("commands.md"), index));
    pages
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

/// Appends one command or subcommand.
fn describe(page: &mut String, spec: &CommandSpec, container: Option<&CommandSpec>) {
    let (mark, name) = match container {
        None => ("##", spec.name.to_owned()),
        Some(container) => ("###", format!("{} {}", container.name, spec.name)),
    };
    write!(page, "\n{mark} {name}\n\n").unwrap();
    let is_container = !spec.subcommands.is_empty() && spec.syntax.is_empty();
    if !is_container {
        writeln!(
            page,
            "```text\n{}\n```\n",
            format!("{name} {}", spec.syntax).trim_end()
        )
        .unwrap();
    }
    writeln!(page, "{}", spec.summary).unwrap();
    if let Some(deprecated) = spec.deprecated {
        let (since, instead) = (deprecated.since, deprecated.replaced_by);
        writeln!(page, "Discouraged since {since}; instead: {instead}.").unwrap();
    }
    if is_container {
        return;
    }
    let categories: Vec<String> = categories_of(spec)
        .iter()
        .map(|one| format!("@{one}"))
        .collect();
    let (since, cost) = (spec.since, spec.complexity);
    let who = categories.join(" ");
    write!(page, "\nSince {since}. Cost: {cost}. ACL: `{who}`.\n").unwrap();
    for (version, what) in spec.history {
        writeln!(page, "\n- {version}: {what}").unwrap();
    }
    let transcript = fs::read_to_string(path(spec, container)).unwrap();
    let lines = example(&transcript, &name);
    if !lines.is_empty() {
        write!(page, "\n```text\n{}\n```\n", lines.join("\n")).unwrap();
    }
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A request and its reply.
struct Exchanged<'a> {
    lines: Vec<&'a str>,
    is_own: bool,
}

/// Returns the first successful requests of a transcript, up to a few of the command itself.
fn example(transcript: &str, name: &str) -> Vec<String> {
    let mut kept: Vec<Exchanged<'_>> = Vec::new();
    for one in exchanges(transcript, name) {
        let own = kept.iter().filter(|one| one.is_own).count();
        if own == CALLS_MAX || (own > 0 && kept.len() == REQUESTS_MAX) {
            break;
        }
        kept.push(one);
    }
    if !kept.iter().any(|one| one.is_own) {
        return Vec::new();
    }
    let last = kept.iter().rposition(|one| one.is_own).unwrap_or(0);
    kept.truncate(last + 1);
    let late = kept.len().saturating_sub(REQUESTS_MAX);
    let lines = kept[late..].iter().flat_map(|one| &one.lines);
    lines.map(|line| cut(line)).collect()
}

fn cut(line: &str) -> String {
    if line.chars().count() <= LINE_CHARS_MAX {
        return line.to_owned();
    }
    let start: String = line.chars().take(LINE_CHARS_MAX).collect();
    format!("{start}…")
}

/// Returns the requests that were not refused, with their replies and the comment above.
fn exchanges<'a>(transcript: &'a str, name: &str) -> Vec<Exchanged<'a>> {
    let mut all: Vec<Exchanged<'a>> = Vec::new();
    let (mut comment, mut is_open) = (Vec::new(), false);
    for line in transcript.lines() {
        let is_comment =
            line.starts_with('#') && !line.starts_with("#t") && !line.starts_with("#f");
        match line {
            "" => (comment, is_open) = (Vec::new(), false),
            line if is_comment => {
                comment.push(line);
                is_open = false;
            }
            // Directives for sending requests, and raw bytes.
            line if line.starts_with('!') || line.starts_with(">>") => is_open = false,
            line if line.starts_with("> ") => {
                let mut lines = std::mem::take(&mut comment);
                lines.push(line);
                let asked = line[2..].to_uppercase();
                let is_own = asked == name || asked.starts_with(&format!("{name} "));
                all.push(Exchanged { lines, is_own });
                is_open = true;
            }
            line if is_open => {
                if let Some(last) = all.last_mut() {
                    last.lines.push(line);
                }
            }
            _ => {}
        }
    }
    let is_refused = |line: &&str| line.starts_with('-') || line.starts_with("<error");
    all.retain(|one| !one.lines.iter().any(is_refused));
    all
}

#[test]
fn examples_leave_out_what_is_refused() {
    let transcript = "> SET\n-ERR wrong number of arguments\n# Twice.\n> SET k v\n+OK\n! fresh\n> GET k\n\"v\"\n\n> set k w\n+OK\n";
    let lines = example(transcript, "SET");
    assert_eq!(
        lines,
        [
            "# Twice.",
            "> SET k v",
            "+OK",
            "> GET k",
            "\"v\"",
            "> set k w",
            "+OK"
        ]
    );
    assert_eq!(example(transcript, "DEL"), Vec::<String>::new());
}
