//! The page of all error replies for readers, `docs/reference/errors.md`. The texts come from the
//! source; the meaning of each first word is defined here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::workspace_root;

/// First words with their meaning and what a client or an operator does.
const WORDS: [(&str, &str, &str); 32] = [
    (
        "ASK",
        "No reply of this server, which never has a slot half moved. Its clients (`cli -c`, `migrate`) get it from nodes of Redis.",
        "They send ASKING and the request there.",
    ),
    (
        "BUSY",
        "A script has run for longer than `busy-reply-threshold`, and this request wants its keys.",
        "Wait, or SCRIPT KILL.",
    ),
    (
        "BUSYGROUP",
        "XGROUP CREATE: the group is there.",
        "Go on; it was made earlier.",
    ),
    (
        "BUSYKEY",
        "RESTORE, MIGRATE: the key is there.",
        "REPLACE, or another key.",
    ),
    (
        "CLUSTERDOWN",
        "The slot is nobody's, or the node hears no majority.",
        "`CLUSTER INFO` says which; see [cluster mode](cluster.md).",
    ),
    (
        "CROSSSLOT",
        "The keys of one request are in several slots.",
        "Give them one `{tag}`, or let the node [forward](cluster.md).",
    ),
    (
        "DENIED",
        "Protected mode: no password is set, and the client is on another machine.",
        "Set a password or users; see [security](../security.md).",
    ),
    (
        "ERR",
        "Anything else: the text says what.",
        "Correct the request.",
    ),
    (
        "EXECABORT",
        "EXEC: a request after MULTI was refused, so nothing ran.",
        "Look at the replies to the requests before.",
    ),
    (
        "INVALIDOBJ",
        "The string is a HyperLogLog that is damaged.",
        "Write it anew.",
    ),
    (
        "IOERR",
        "MIGRATE: the other server does not answer.",
        "Try again; the key is where it was, or at both.",
    ),
    (
        "LOADING",
        "The server reads its data.",
        "Wait; `/readyz` and INFO's `loading_loaded_perc` say how long.",
    ),
    (
        "MASTERDOWN",
        "A replica has no link to its primary, and `replica-serve-stale-data` is no.",
        "Ask the primary.",
    ),
    (
        "MISCONF",
        "The log or the checkpoint cannot be written, so writes are refused.",
        "[Writes refused](../deploy/runbook/writes-refused.md).",
    ),
    (
        "MOVED",
        "The slot is another node's.",
        "Cluster clients send the request there.",
    ),
    ("NOAUTH", "The connection has to say who it is.", "AUTH."),
    (
        "NOGROUP",
        "The stream, or its group of consumers, is not there.",
        "XGROUP CREATE.",
    ),
    (
        "NOMASTERLINK",
        "A replica of this server asks for data that this server has not yet.",
        "It tries again by itself.",
    ),
    (
        "NOPERM",
        "The user may not run the command, or not with this key or channel.",
        "`ACL DRYRUN`, `ACL LOG`.",
    ),
    (
        "NOPROTO",
        "HELLO: no such version of the protocol.",
        "2 or 3.",
    ),
    (
        "NOQUORUM",
        "SENTINEL CKQUORUM: too few nodes of the group are heard.",
        "[Control group](control-group.md).",
    ),
    (
        "NOREPLICAS",
        "Too few replicas have the write, or could have it.",
        "`min-replicas-to-write`, `durability quorum`.",
    ),
    (
        "NOSCRIPT",
        "EVALSHA: the script is not known here.",
        "EVAL once; clients do so by themselves.",
    ),
    ("NOTBUSY", "SCRIPT KILL: no script runs.", "Nothing."),
    (
        "OOM",
        "`maxmemory` is reached, and the policy removes nothing.",
        "[Memory](../deploy/runbook/memory.md).",
    ),
    (
        "READONLY",
        "A replica takes no writes.",
        "Write to the primary.",
    ),
    (
        "TIERFAIL",
        "The value lies in a file of the [tier](tier.md) that cannot be read.",
        "The log says why; other keys are not touched.",
    ),
    (
        "TRYAGAIN",
        "A slot is about to move, or some keys of the request have moved.",
        "Send it again.",
    ),
    (
        "UNBLOCKED",
        "The client waited, and was woken: CLIENT UNBLOCK, or the server changed its role.",
        "Send it again, at the primary.",
    ),
    (
        "UNKILLABLE",
        "SCRIPT KILL: the script has written.",
        "SHUTDOWN NOSAVE, or wait.",
    ),
    (
        "WRONGPASS",
        "AUTH: the user's name or the password is wrong, or the user is off.",
        "Look at `ACL LIST`.",
    ),
    ("WRONGTYPE", "The key holds another type.", "TYPE."),
];

/// Rooms whose error texts clients receive.
const ROOMS: [&str; 7] = [
    "access",
    "cluster",
    "commands",
    "engine",
    "protocol",
    "scripting",
    "server",
];

const HEAD: &str = "\
# Errors

Generated from the source by `cargo test -p xtask write_the_errors -- --ignored`; a test fails when it is out of date.

The first word of an error is for programs: clients decide by it, and INFO's `errorstats` counts by it. What follows is for people.
Texts are those of Redis where Redis has them. `{…}` stands for what the request or the
server adds, and so does `…` at the end.

| Word | What it means | What to do |
|---|---|---|
";

#[test]
fn the_reference_has_the_texts_of_the_source() {
    let text = fs::read_to_string(page()).unwrap_or_default();
    assert!(
        text == reference(),
        "out of date: cargo test -p xtask write_the_errors -- --ignored"
    );
}

/// Every error reply in the transcripts begins with a word of the table.
#[test]
fn every_word_of_a_transcript_is_explained() {
    // Scripts in transcripts invent these words.
    let made_up = ["MYERR", "MINE"];
    let known: BTreeSet<&str> = WORDS
        .iter()
        .map(|(word, ..)| *word)
        .chain(made_up)
        .collect();
    let mut missing = BTreeSet::new();
    for path in files(
        &workspace_root().join("crates/commands/tests/transcripts"),
        "txt",
    ) {
        let text = fs::read_to_string(path).expect("a transcript is text");
        for line in text.lines() {
            let rest = line
                .strip_prefix('-')
                .or_else(|| line.strip_prefix("<error \""));
            let word = rest
                .and_then(|rest| rest.split(' ').next())
                .unwrap_or_default();
            let is_word = word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
            if is_word && !known.contains(word) {
                missing.insert(word.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "not explained: {missing:?}");
}

#[test]
#[ignore = "writes into the source tree"]
fn write_the_errors() {
    fs::write(page(), reference()).expect("the page can be written");
}

fn page() -> PathBuf {
    workspace_root().join("docs/reference/errors.md")
}

fn reference() -> String {
    let texts = texts();
    let mut page = HEAD.to_owned();
    let mut all: Vec<_> = WORDS.iter().collect();
    all.sort_unstable();
    let write = "text goes into a String";
    for (word, meaning, remedy) in &all {
        let shown = match texts.contains_key(word) {
            true => format!("[`{word}`](#{})", word.to_lowercase()),
            // The rest of the text is formatted from a slot and an address.
            false => format!("`{word}`"),
        };
        writeln!(page, "| {shown} | {meaning} | {remedy} |").expect(write);
    }
    for (word, ..) in all {
        let Some(texts) = texts.get(word) else {
            continue;
        };
        write!(page, "\n## {word}\n\n```text\n").expect(write);
        for text in texts {
            writeln!(page, "{text}").expect(write);
        }
        page.push_str("```\n");
    }
    page
}

/// Returns the texts in the source by their first word.
fn texts() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for room in ROOMS {
        let sources = workspace_root().join("crates").join(room).join("src");
        for path in files(&sources, "rs") {
            let is_test = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
            if path.iter().any(is_test) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("source is text");
            for literal in literals(without_tests(&text)) {
                let literal = shown(literal.strip_prefix('-').unwrap_or(&literal));
                let Some((word, rest)) = literal.split_once(' ') else {
                    continue;
                };
                if let Some((word, ..)) = WORDS.iter().find(|(known, ..)| *known == word)
                    && !rest.is_empty()
                {
                    found.entry(word).or_default().insert(literal.clone());
                }
            }
        }
    }
    found
}

/// Returns a text for readers. If it is only the beginning of a reply, the text shows that.
fn shown(text: &str) -> String {
    let goes_on = text.ends_with(' ') || text.matches('\'').count() == 1 && text.ends_with('\'');
    match goes_on {
        true => format!("{}…", text.trim_end()),
        false => text.to_owned(),
    }
}

/// Returns a file up to its tests.
fn without_tests(text: &str) -> &str {
    let end = text
        .find("#[cfg(test)]\n#[allow")
        .or_else(|| text.find("#[cfg(test)]\nmod"));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the string literals of Rust source, except those in comments. Escapes are resolved; `\r`
/// and `\n` are left out.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices('"') {
        let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = &source[line..at];
        // A closing quote is never followed by a known word.
        if before.trim_start().starts_with("//") || !begins_word(&source[at + 1..]) {
            continue;
        }
        found.push(literal(&source[at + 1..]));
    }
    found
}

fn begins_word(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let word = text.split(' ').next().unwrap_or_default();
    WORDS.iter().any(|(known, ..)| *known == word)
}

/// Returns the text of a literal, after its opening quote.
fn literal(text: &str) -> String {
    let mut said = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => match letters.next() {
                Some('n' | 'r') => {}
                Some('\n') => while letters.next_if(|next| next.is_whitespace()).is_some() {},
                Some(other) => said.push(other),
                None => break,
            },
            other => said.push(other),
        }
    }
    said
}

fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory).expect("the directory is there");
    for entry in entries {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.extension().is_some_and(|own| own == end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn literals_are_read_as_the_compiler_reads_them() {
    let source = "// \"ERR a comment\"\nf(\"ERR one \\\n     line '{name}'\\r\\n\"); g(\"-OOM \\\"x\\\"\", \"other\");";
    assert_eq!(literals(source), ["ERR one line '{name}'", "-OOM \"x\""]);
}
