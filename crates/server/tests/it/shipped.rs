//! What is asked of the binary that ships, which `SERVER_BIN` names: it is small, and has none of the features that are
//! for tests.
//!
//! `naive` of the store, `simulated` and `planted` of the log are modules that an ordinary build leaves out. Their
//! names are in the symbols of a program that has them, this test among them.

use std::path::Path;
use std::process::Command;

use testkit::process::{ServerBuilder, iolite_program};

/// Parts of symbols of what is only in builds for tests: lengths of names and the names.
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
    // Without the variable it is the binary beside this test, which is built with this test's features.
    if std::env::var_os("SERVER_BIN").is_none() {
        return;
    }
    let shipped = iolite_program();
    assert!(has(&shipped, "10durability"), "no symbols to look at");
    for symbol in FOR_TESTS {
        assert!(!has(&shipped, symbol), "{symbol}");
    }
}

/// With what is mapped of its program. One that is not optimised is several times as long, and says nothing.
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
