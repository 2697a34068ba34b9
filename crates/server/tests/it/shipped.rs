//! Requirements on the shipped binary, which `SERVER_BIN` names: it is small, and has none of the
//! features for tests.
//!
//! `naive` of the store, `simulated` and `planted` of the log are modules that an ordinary build
//! leaves out. A program that contains them has their names in its symbols, and so does this test.

use std::path::Path;
use std::process::Command;

use testkit::process::{ServerBuilder, iolite_program};

/// Parts of the symbols of modules that are only in builds for tests: lengths of names and the
/// names.
const FOR_TESTS: [&str; 3] = [
    "10durability9simulated",
    "10durability7planted2on",
    "5store5naive",
];

fn has(program: &Path, symbol: &str) -> bool {
    let grep = Command::new("grep")
        .args(["--quiet", "--text", "--fixed-strings", symbol])
        .arg(program)
        .status();
    grep.unwrap().success()
}

#[test]
fn the_binary_has_no_feature_for_tests() {
    let this = std::env::current_exe().unwrap();
    assert!(has(&this, FOR_TESTS[0]), "it is not seen where it is");
    // Without the variable, the binary is the one beside this test, which is built with this test's
    // features.
    if std::env::var_os("SERVER_BIN").is_none() {
        return;
    }
    let shipped = iolite_program();
    assert!(has(&shipped, "10durability"), "no symbols to look at");
    for symbol in FOR_TESTS {
        assert!(!has(&shipped, symbol), "{symbol}");
    }
}

/// Includes the mapped part of its program. A program that is not optimised is several times as
/// large, so its size means nothing.
#[test]
fn an_empty_server_is_small() {
    if std::env::var_os("SERVER_BIN").is_none() {
        return;
    }
    let oracle = ServerBuilder::oracle().start().unwrap();
    let most = oracle.rss_bytes().unwrap();
    for threads in ["1", "4"] {
        let builder = ServerBuilder::iolite().args(&["--io-threads", threads]);
        let held = builder.start().unwrap().rss_bytes().unwrap();
        assert!(
            held <= most,
            "{threads} workers: {held}, Redis: {most} bytes"
        );
    }
}
