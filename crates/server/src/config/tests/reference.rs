//! The list of all directives for readers, `docs/reference/configuration.md`, matches the table.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::super::directive::{ChangeRule, Directive, Standing};
use super::super::directives;
use super::super::table::REFUSED_WORDS;

const HEAD: &str = "\
# Configuration directives

Generated from the table of directives by
`cargo test -p server write_the_reference -- --ignored`; a test fails when it is out of date.

Directives are Redis'. They are read from the environment (`IOLITE_<DIRECTIVE>`, in upper case with
underscores; `IOLITE_<DIRECTIVE>_FILE` for a secret kept in a file), then from the file, then from
standard input (`-`), then from the command line (`--directive value ...`); what is read last wins.
The environment stands below the file so that what CONFIG REWRITE has saved holds after a restart.

*Set*: **always** also by CONFIG SET; **protected** by CONFIG SET where `enable-protected-configs`
allows it; **at start** only there.

`threads` follows the cores that the process may use: its affinity and the CPU quota of its control
group. Set it lower when clients run on the same machine. `busy-poll-us` is how long a worker at
most looks for events before it blocks, in microseconds: it does so only while requests come at
shorter intervals, and never when there are as many workers as cores or more, as by default. With
cores to spare (`threads` below the number of cores) it answers a lone client sooner and uses more
processor time; `0` turns it off.

Memory that lies idle between records is given back by moving records together, in short steps
between commands. With `activedefrag yes` this begins when `active-defrag-ignore-bytes` and
`active-defrag-threshold-lower` per cent of what is in use lie idle; with `activedefrag no`, the default,
at 1 MiB and 10 %; under `maxmemory` as much of it is done as the limit needs. What collections have beside their
records lies in the memory of the allocator, jemalloc, which gives free pages back by itself; where it says that pieces lie
apart, a thread moves them together, with the same thresholds, in at most 8 % of each core that clients want.
`MEMORY PURGE` asks for all of it at once.

`maxmemory` counts the store, the clients, the program and the memory of the operation log
(`mem_aof_buffer`; as a quarter of the limit at most), and beyond that what the system says that the process holds.

`durability` names what is left of acknowledged writes after a crash: `none`, `checkpoint` (what the
last checkpoint has), `os` (all, as long as the operating system goes on), `everysec` (all but about
the last second) or `always`. Redis' `appendonly`, `appendfsync` and `save` say the same in other
words, and each view follows the other: `durability always` is `appendonly yes` with `appendfsync
always`; `durability none` is `appendonly no` without save points.

`redis-version` is the version of Redis that HELLO, INFO, LOLWUT and scripts tell. Clients switch features on it.
";

#[test]
fn the_reference_lists_the_table() {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        text == reference(),
        "out of date: cargo test -p server write_the_reference -- --ignored"
    );
}

#[test]
#[ignore = "writes into the source tree"]
fn write_the_reference() {
    std::fs::create_dir_all(path().parent().unwrap()).unwrap();
    std::fs::write(path(), reference()).unwrap();
}

fn path() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/reference/configuration.md")
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    let rows = || directives::all().iter();
    text.push_str("\n## Directives that work\n\n| Directive | Default | Set |\n|---|---|---|\n");
    for row in rows().filter(|row| matches!(row.standing, Standing::Works)) {
        let (names, default, change) = cells(row);
        writeln!(text, "| {names} | {default} | {change} |").unwrap();
    }
    text.push_str(
        "\n## Accepted without effect\n\nNobody could miss what they change; those that are set \
         are named in a line of the log at start.\n\n\
         | Directive | Default | Why nothing depends on it |\n|---|---|---|\n",
    );
    for row in rows() {
        if let Standing::WithoutEffect { reason } = row.standing {
            let (names, default, _) = cells(row);
            writeln!(text, "| {names} | {default} | {reason} |").unwrap();
        }
    }
    text.push_str(
        "\n## Refused\n\nOf things this version does not have. The values shown say that and are \
         accepted; any other stops the start, or fails the CONFIG SET, with a sentence.\n\n\
         | Directive | Accepted | Because this version |\n|---|---|---|\n",
    );
    for row in rows() {
        if let Standing::Fixed { lacks, also } = row.standing {
            let (names, default, _) = cells(row);
            let accepted = also.iter().map(|text| literal(text));
            let accepted: Vec<String> = std::iter::once(default).chain(accepted).collect();
            writeln!(text, "| {names} | {} | {lacks} |", accepted.join(", ")).unwrap();
        }
    }
    for (word, lacks) in REFUSED_WORDS {
        writeln!(text, "| `{word}` | nothing | {lacks} |").unwrap();
    }
    text
}

/// Returns names, default and rule of change.
fn cells(row: &Directive) -> (String, String, &'static str) {
    let names: Vec<String> = row.names().map(|name| format!("`{name}`")).collect();
    let default = match row.name {
        "threads" => "one per processor".to_owned(),
        _ => literal(row.default),
    };
    let change = match row.change {
        ChangeRule::Always => "always",
        ChangeRule::Protected => "protected",
        ChangeRule::AtStart => "at start",
    };
    (names.join(", "), default, change)
}

fn literal(text: &str) -> String {
    match text {
        "" => "`\"\"`".to_owned(),
        text => format!("`{text}`"),
    }
}
