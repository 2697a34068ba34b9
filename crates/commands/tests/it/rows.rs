//! Compares every row of the table with Redis: COMMAND and the arguments in COMMAND DOCS.
//!
//! Summaries are in our own words. So is the history of a command; only its versions are compared.

use protocol::OwnedRequest;
use std::collections::{BTreeMap, BTreeSet};

use protocol::Value;

use crate::effect_server::TestServer;
use crate::oracle;

/// Intended differences of rows from Redis 7.0.15: row, field, reason. An entry without a
/// difference fails the test.
const ACCEPTED: &[(&str, &str, &str)] = &[
    ("client|kill", "history", "MAXAGE is newer: Redis 7.4"),
    ("set", "history", "IFEQ is newer: Valkey 8.1"),
    ("client|capa", "row", "newer: Valkey 8.0"),
    ("client|durability", "row", "our own"),
    ("client|forward", "row", "our own"),
    ("replication", "row", "our own"),
    ("replication|differences", "row", "our own"),
    ("replication|drain", "row", "our own"),
    ("replication|leave", "row", "our own"),
    ("replication|undrain", "row", "our own"),
    ("object|tier", "row", "our own"),
    ("tier", "row", "our own"),
    ("tier|compact", "row", "our own"),
    ("tier|drain", "row", "our own"),
    ("tier|help", "row", "our own"),
    ("tier|scrub", "row", "our own"),
    ("tier|status", "row", "our own"),
    ("cluster|info", "flags", "Valkey 8 answers while it loads"),
    (
        "cluster|meet",
        "flags",
        "needs no data; Redis loads little data within one step, and here others are served meanwhile",
    ),
    ("cluster|myid", "flags", "Valkey 8 answers while it loads"),
    ("cluster|nodes", "flags", "Valkey 8 answers while it loads"),
    ("cluster|shards", "flags", "7.2 answers while it loads"),
    ("cluster|slots", "flags", "7.2 answers while it loads"),
    ("cluster|slot-stats", "row", "newer: Redis 8.2"),
    ("cluster|cancelslotmigrations", "row", "newer: Valkey 9.0"),
    ("cluster|getslotmigrations", "row", "newer: Valkey 9.0"),
    ("cluster|migrateslots", "row", "newer: Valkey 9.0"),
    ("cluster|migration", "row", "newer: Redis 8.4"),
    ("migrate", "arguments", "an empty word has no name"),
    ("replication|help", "row", "our own"),
    ("replication|verify", "row", "our own"),
    ("cluster|myshardid", "row", "newer: Redis 7.2"),
    ("client|maint_notifications", "row", "newer: Redis 8.2"),
    ("client|no-touch", "row", "newer: Redis 7.2"),
    ("client|setinfo", "row", "newer: Redis 7.2"),
    (
        "pfdebug",
        "doc_flags",
        "who reads the documentation may know of it",
    ),
    (
        "pfselftest",
        "doc_flags",
        "who reads the documentation may know of it",
    ),
    ("blmove", "flags", "7.2 lets scripts run it"),
    ("blpop", "flags", "7.2 lets scripts run it"),
    ("brpop", "flags", "7.2 lets scripts run it"),
    ("brpoplpush", "flags", "7.2 lets scripts run it"),
    ("bzpopmax", "flags", "7.2 lets scripts run it"),
    ("bzpopmin", "flags", "7.2 lets scripts run it"),
    ("wait", "flags", "7.2 lets scripts run it"),
    ("wait", "categories", "7.2 says that it blocks"),
    ("waitaof", "row", "newer: Redis 7.2"),
    ("commandlog", "row", "newer: Valkey 8.1"),
    ("commandlog|get", "row", "newer: Valkey 8.1"),
    ("commandlog|help", "row", "newer: Valkey 8.1"),
    ("commandlog|len", "row", "newer: Valkey 8.1"),
    ("commandlog|reset", "row", "newer: Valkey 8.1"),
    ("delifeq", "row", "newer: Valkey 9.0"),
    ("expiremember", "row", "KeyDB's"),
    ("expirememberat", "row", "KeyDB's"),
    ("pexpirememberat", "row", "KeyDB's"),
    ("msetex", "row", "newer: Redis 8.4"),
    ("sunioncard", "row", "newer: Redis 8.10"),
    ("hotkeys", "row", "newer: Redis 8.6"),
    ("hotkeys|big", "row", "our own"),
    ("hotkeys|get", "row", "newer: Redis 8.6"),
    ("hotkeys|help", "row", "newer: Redis 8.6"),
    ("hotkeys|reset", "row", "newer: Redis 8.6"),
    ("delifgreater", "row", "Garnet's"),
    ("execifgreater", "row", "Garnet's"),
    ("execifmatch", "row", "Garnet's"),
    ("execifnotmatch", "row", "Garnet's"),
    ("execwithetag", "row", "Garnet's"),
    ("getetag", "row", "Garnet's"),
    ("setetag", "row", "our own"),
    ("getifnotmatch", "row", "Garnet's"),
    ("getwithetag", "row", "Garnet's"),
    ("setifgreater", "row", "Garnet's"),
    ("setifmatch", "row", "Garnet's"),
    ("setwithetag", "row", "Garnet's"),
    ("mcdel", "row", "our own"),
    ("mcflush", "row", "our own"),
    ("mcwin", "row", "our own"),
    ("mcgat", "row", "our own"),
    ("mcget", "row", "our own"),
    ("mcincr", "row", "our own"),
    ("mcset", "row", "our own"),
    ("hexpire", "row", "newer: Redis 7.4"),
    ("hexpireat", "row", "newer: Redis 7.4"),
    ("hexpiretime", "row", "newer: Redis 7.4"),
    ("hgetdel", "row", "newer: Redis 8.0"),
    ("hgetex", "row", "newer: Redis 8.0"),
    ("hpersist", "row", "newer: Redis 7.4"),
    ("hpexpire", "row", "newer: Redis 7.4"),
    ("hpexpireat", "row", "newer: Redis 7.4"),
    ("hpexpiretime", "row", "newer: Redis 7.4"),
    ("hpttl", "row", "newer: Redis 7.4"),
    ("hsetex", "row", "newer: Redis 8.0"),
    ("httl", "row", "newer: Redis 7.4"),
    ("script|show", "row", "newer: Valkey 8.0"),
    ("acl|deluser", "tips", "7.2 has them"),
    ("acl|log", "history", "7.2 tells more of an entry"),
    ("acl|save", "tips", "7.2 has them"),
    ("acl|setuser", "tips", "7.2 has them"),
    ("client|setname", "tips", "7.2 has them"),
    ("config|resetstat", "tips", "7.2 has them"),
    ("config|rewrite", "tips", "7.2 has them"),
    ("latency|reset", "tips", "7.2 adds up what nodes say"),
    ("msetnx", "tips", "7.2: no client shares it among shards"),
    ("randomkey", "tips", "7.2 names no way to join replies"),
    ("scan", "tips", "7.2 names no way to join replies"),
    ("sinterstore", "keys", "7.4: what was there is overwritten"),
    (
        "command|getkeys",
        "arity",
        "7.2 takes a command without arguments",
    ),
    (
        "command|getkeysandflags",
        "arity",
        "7.2 takes a command without arguments",
    ),
    ("command|getkeys", "arguments", "7.2 documents them"),
    ("command|getkeysandflags", "arguments", "7.2 documents them"),
    ("bitop", "arguments", "7.2 names the operations"),
    (
        "client|kill",
        "arguments",
        "MAXAGE is newer, SKIPME takes two words",
    ),
    (
        "client|list",
        "arguments",
        "7.2 puts the token before the ids, not around them",
    ),
    ("config|get", "arguments", "a block of one is that one"),
    ("debug", "arguments", "7.0 documents none"),
    (
        "module|loadex",
        "arguments",
        "7.2 has a token before the last ones, not a block",
    ),
    ("debug", "doc_flags", "Redis means its own developers"),
    ("restore-asking", "doc_flags", "Redis means its own nodes"),
    (
        "lcs",
        "arguments",
        "the length to match has a name of its own",
    ),
    ("set", "arguments", "IFEQ is newer: Valkey 8.1"),
    ("bitcount", "arguments", "one position is newer: Valkey 8"),
    ("bitcount", "history", "one position is newer: Valkey 8"),
    ("zscan", "arguments", "NOSCORES is newer: Valkey 8"),
    ("hscan", "arguments", "NOVALUES is newer: Redis 7.4"),
    ("psetex", "deprecated_since", "7.2 discourages it"),
    ("psetex", "doc_flags", "7.2 discourages it"),
    ("psetex", "replaced_by", "7.2 discourages it"),
    ("setex", "deprecated_since", "7.2 discourages it"),
    ("setex", "doc_flags", "7.2 discourages it"),
    ("setex", "replaced_by", "7.2 discourages it"),
    ("zrank", "arity", "7.2 has WITHSCORE"),
    ("zrank", "arguments", "7.2 has WITHSCORE"),
    ("zrank", "history", "7.2 has WITHSCORE"),
    ("zrevrank", "arity", "7.2 has WITHSCORE"),
    ("zrevrank", "arguments", "7.2 has WITHSCORE"),
    ("zrevrank", "history", "7.2 has WITHSCORE"),
    ("setnx", "deprecated_since", "7.2 discourages it"),
    ("setnx", "doc_flags", "7.2 discourages it"),
    ("setnx", "replaced_by", "7.2 discourages it"),
    ("xinfo|consumers", "history", "7.2 has inactive"),
    ("xinfo|stream", "history", "7.2 has active-time"),
    ("xinfo|stream", "arguments", "a block of one is that one"),
    ("psubscribe", "arguments", "a block of one is that one"),
    ("replconf", "doc_flags", "Redis means its own nodes"),
    ("replicaof", "arguments", "FORCE is our own"),
    ("replicaof", "arity", "FORCE is our own"),
    ("slaveof", "arguments", "FORCE is our own"),
    ("slaveof", "arity", "FORCE is our own"),
    ("quit", "deprecated_since", "7.2 discourages it"),
    ("quit", "doc_flags", "7.2 discourages it"),
    ("quit", "replaced_by", "7.2 discourages it"),
];

/// A row's fields by name, each as text.
type Row = BTreeMap<&'static str, String>;

#[test]
fn rows_are_those_of_redis() {
    let Some(redis) = oracle::start() else { return };
    let theirs = rows(
        &oracle::ask(&redis, &["COMMAND"]),
        &oracle::ask(&redis, &["COMMAND", "DOCS"]),
    );
    let mut server = TestServer::resp3();
    let ours = rows(&server.line("COMMAND"), &server.line("COMMAND DOCS"));
    let found = differences(&ours, &theirs);
    let accepted: BTreeSet<(&str, &str)> = ACCEPTED
        .iter()
        .map(|(row, field, _)| (*row, *field))
        .collect();
    let unexplained: Vec<&String> = found
        .iter()
        .filter(|((row, field), _)| !accepted.contains(&(row.as_str(), field.as_str())))
        .map(|(_, text)| text)
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    for (row, field) in accepted {
        let key = (row.to_owned(), field.to_owned());
        assert!(
            found.contains_key(&key),
            "{row} no longer differs in {field}"
        );
    }
}

/// Returns the differences, by row and field.
fn differences(
    ours: &BTreeMap<String, Row>,
    theirs: &BTreeMap<String, Row>,
) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for (name, row) in ours {
        let Some(their_row) = theirs.get(name) else {
            found.insert(
                (name.clone(), "row".to_owned()),
                format!("{name} is not in Redis"),
            );
            continue;
        };
        let fields: BTreeSet<_> = row.keys().chain(their_row.keys()).collect();
        for field in fields {
            let (our, their) = (row.get(field), their_row.get(field));
            if our != their {
                let text = format!("{name}, {field}: {our:?}, in Redis {their:?}");
                found.insert((name.clone(), (*field).to_owned()), text);
            }
        }
    }
    found
}

/// Returns all rows, with subcommands by their full names.
fn rows(commands: &Value, docs: &Value) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for command in elements(commands) {
        add_row(&mut rows, command);
    }
    add_docs(&mut rows, docs);
    rows
}

fn add_row(rows: &mut BTreeMap<String, Row>, command: &Value) {
    const FIELDS: &[(usize, &str)] = &[
        (1, "arity"),
        (2, "flags"),
        (3, "first key"),
        (4, "last key"),
        (5, "step"),
        (6, "categories"),
        (7, "tips"),
        (8, "keys"),
    ];
    let parts = elements(command);
    let shown = FIELDS.iter().map(|(at, field)| (*field, show(&parts[*at])));
    rows.insert(text(&parts[0]), shown.collect());
    for subcommand in elements(&parts[9]) {
        add_row(rows, subcommand);
    }
}

fn add_docs(rows: &mut BTreeMap<String, Row>, docs: &Value) {
    const FIELDS: &[&str] = &[
        "since",
        "group",
        "doc_flags",
        "deprecated_since",
        "replaced_by",
    ];
    for (name, docs) in pairs(docs) {
        let row = rows.entry(text(name)).or_default();
        for field in FIELDS {
            row.extend(get(docs, field).map(|value| (*field, show(value))));
        }
        let history = get(docs, "history").map(|list| ("history", versions(list)));
        row.extend(history);
        let arguments = get(docs, "arguments").map(|list| ("arguments", arguments(list)));
        row.extend(arguments);
        if let Some(subcommands) = get(docs, "subcommands") {
            add_docs(rows, subcommands);
        }
    }
}

/// Returns the versions in which something changed.
fn versions(history: &Value) -> String {
    let versions: BTreeSet<String> = elements(history)
        .iter()
        .map(|entry| text(&elements(entry)[0]))
        .collect();
    versions.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns an argument tree without the parts that are only for display: names of groups, versions,
/// display texts.
fn arguments(list: &Value) -> String {
    let mut shown = String::new();
    for argument in elements(list) {
        let kind = get(argument, "type").map(text).unwrap_or_default();
        let is_group = kind == "oneof" || kind == "block";
        shown.push_str(&format!("({kind}"));
        for field in ["name", "token", "key_spec_index", "flags"] {
            if let Some(value) = get(argument, field)
                && !(is_group && field == "name")
            {
                shown.push_str(&format!(" {field}={}", show(value)));
            }
        }
        if let Some(parts) = get(argument, "arguments") {
            shown.push(' ');
            shown.push_str(&arguments(parts));
        }
        shown.push(')');
    }
    shown
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) | Value::Set(elements) => elements,
        other => panic!("a list was expected, not {other:?}"),
    }
}

fn pairs(value: &Value) -> &[(Value, Value)] {
    match value {
        Value::Map(pairs) => pairs,
        other => panic!("a map was expected, not {other:?}"),
    }
}

fn get<'v>(map: &'v Value, field: &str) -> Option<&'v Value> {
    let found = pairs(map).iter().find(|(name, _)| text(name) == field);
    found.map(|(_, value)| value)
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("a text was expected, not {other:?}"),
    }
}

/// Returns a value as one line with its type. The order of a set or map is ignored.
fn show(value: &Value) -> String {
    match value {
        Value::Set(elements) => {
            let mut shown: Vec<String> = elements.iter().map(show).collect();
            shown.sort();
            format!("~{{{}}}", shown.join(", "))
        }
        Value::Map(pairs) => {
            let pair = |(name, value): &(Value, Value)| format!("{}: {}", show(name), show(value));
            let mut shown: Vec<String> = pairs.iter().map(pair).collect();
            shown.sort();
            format!("%{{{}}}", shown.join(", "))
        }
        other => testkit::transcript::show(other),
    }
}

/// A row based on another one must not keep that one's loop.
#[test]
fn a_loop_of_its_own_belongs_to_one_handler() {
    let loops = || {
        let commands = testkit::table().commands().iter();
        commands.filter_map(|spec| Some((spec, spec.series? as usize)))
    };
    for (one, own) in loops() {
        for (other, _) in loops().filter(|(_, theirs)| *theirs == own) {
            let is_same = one.handler as usize == other.handler as usize;
            assert!(is_same, "{} runs as {}", one.name, other.name);
        }
    }
}

#[test]
fn every_command_is_found_by_its_name() {
    let table = testkit::table();
    for spec in table.commands() {
        let found = table.find(spec.name.to_lowercase().as_bytes()).unwrap();
        assert_eq!(found.spec.name, spec.name);
        for subcommand in spec.subcommands {
            let (index, row) = table
                .find_subcommand((found.index, spec), subcommand.name.as_bytes())
                .unwrap();
            let full_name = format!("{}|{}", spec.name, subcommand.name).to_lowercase();
            assert_eq!(row.name, subcommand.name);
            assert_eq!(table.full_name(index), Some(full_name.as_str()));
        }
    }
}

/// Returns the indexes of a request's arguments that no log shows.
fn hidden(words: &[&str]) -> Vec<usize> {
    let table = commands::table();
    let request = OwnedRequest::new(words);
    let found = table.find(words[0].as_bytes()).unwrap();
    let word = words.get(1).unwrap_or(&"").as_bytes();
    let subcommand = table.find_subcommand((found.index, found.spec), word);
    let spec = subcommand.map_or(found.spec, |(_, spec)| spec);
    let is_hidden = |at: &usize| {
        spec.secrets
            .is_some_and(|secrets| secrets(&request.request(), *at))
    };
    (0..words.len()).filter(is_hidden).collect()
}

#[test]
fn passwords_and_users_are_in_no_log() {
    let expected: &[(&[&str], &[usize])] = &[
        (&["auth", "pw"], &[1]),
        (&["AUTH", "me", "pw"], &[1, 2]),
        (&["HELLO", "3", "SETNAME", "x", "auth", "me", "pw"], &[5, 6]),
        (&["ACL", "setuser", "me", "on", ">pw"], &[2, 3, 4]),
        (&["CONFIG", "SET", "port", "1", "requirepass", "pw"], &[5]),
        (&["CONFIG", "SET", "primaryuser", "me"], &[3]),
        (&["CONFIG", "GET", "requirepass"], &[]),
        (&["SET", "auth", "pw"], &[]),
    ];
    for (words, places) in expected {
        assert_eq!(hidden(words), *places, "{words:?}");
    }
}
