//! CONFIG REWRITE: files before and after.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::super::rewrite::{replace_file, rewritten};
use super::super::{Origin, SharedConfig};
use super::{load, set};

/// A file that uses every kind of line.
const BEFORE: &str = include_str!("rewrite/before.conf");
/// The same file after CONFIG REWRITE without changes.
const UNCHANGED: &str = include_str!("rewrite/unchanged.conf");
/// The same file after some CONFIG SET.
const CHANGED: &str = include_str!("rewrite/changed.conf");

/// Returns the result of CONFIG REWRITE on `old` after `pairs` were set. The line of `dir`, which
/// depends on where the tests run, reads `dir "HERE"`.
fn after(old: &str, pairs: &[(&str, &str)]) -> String {
    let settings = load(old).unwrap();
    let config = SharedConfig::new(settings, Origin::default());
    set(&config, pairs).unwrap();
    let settings = config.settings();
    String::from_utf8(rewritten(old.as_bytes(), &settings, &[], false)).unwrap()
}

#[test]
fn comments_order_and_values_stay() {
    assert_eq!(after(BEFORE, &[]), UNCHANGED);
    assert_eq!(after(UNCHANGED, &[]), UNCHANGED);
}

#[test]
fn changes_go_into_their_lines_and_new_ones_to_the_end() {
    let pairs = [
        ("timeout", "5"),
        ("maxmemory", "1234567"),
        ("requirepass", ""),
        ("maxmemory-policy", "allkeys-lru"),
        ("client-output-buffer-limit", "pubsub 1 2 3"),
    ];
    assert_eq!(after(BEFORE, &pairs), CHANGED);
}

#[test]
fn what_a_rewritten_file_says_is_what_was_set() {
    let pairs = [
        ("requirepass", "a \"b\" \u{e4}\\"),
        ("maxmemory-clients", "3%"),
        ("proto-max-bulk-len", "3mb"),
        ("hash-max-ziplist-value", "65"),
    ];
    let old = "port 1\nbind 127.0.0.1 -::1\n";
    let text = after(old, &pairs);
    let expected = SharedConfig::new(load(old).unwrap(), Origin::default());
    set(&expected, &pairs).unwrap();
    assert_eq!(load(&text).unwrap(), expected.settings());
}

#[test]
fn all_lines_say_what_is_so() {
    let settings = load("timeout 5\nsave 900 1\nmaxmemory 1gb").unwrap();
    let text = rewritten(b"timeout 5\n", &settings, &[], true);
    assert_eq!(load(std::str::from_utf8(&text).unwrap()), Ok(settings));
    let text = String::from_utf8(text).unwrap();
    for line in ["tcp-keepalive 300\n", "hz 10\n", "repl-backlog-size"] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
}

#[test]
fn lines_that_mean_nothing_become_comments() {
    let settings = load("").unwrap();
    let text = rewritten(b"no-such-thing 1\nport \"1\n", &settings, &[], false);
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.starts_with("# ??? no-such-thing 1\n# ??? port \"1\n"),
        "{text}"
    );
}

#[test]
fn the_file_is_replaced_as_a_whole_and_keeps_its_mode() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let path = dir.join("iolite.conf");
    fs::write(&path, "timeout 1\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = dir.join("link.conf");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let origin = Origin {
        file: Some(link.clone()),
        arguments: Vec::new(),
    };
    let config = SharedConfig::new(load("timeout 1").unwrap(), origin);
    set(&config, &[("timeout", "2")]).unwrap();
    config.rewrite(&[], false).unwrap();
    assert!(
        fs::read_to_string(&path)
            .unwrap()
            .starts_with("timeout 2\n")
    );
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o640
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        fs::read_dir(dir).unwrap().count(),
        2,
        "nothing is left beside"
    );
    place.close().unwrap();
    assert!(replace_file(&path, b"x").is_err());
    let told = config.rewrite(&[], false).unwrap_err().to_string();
    assert_eq!(told, "ERR Rewriting config file: No such file or directory");
}

#[test]
fn without_a_file_there_is_nothing_to_rewrite() {
    let config = SharedConfig::new(load("").unwrap(), Origin::default());
    let told = config.rewrite(&[], false).unwrap_err().to_string();
    assert_eq!(told, "ERR The server is running without a config file");
}
