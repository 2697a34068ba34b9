//! The list of commands on the compatibility page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every command is on the page, so that a reader can see whether it exists.
#[test]
fn every_command_is_listed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let text = fs::read_to_string(page).unwrap();
    let is_no_part =
        |letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-';
    let words: BTreeSet<&str> = text.split(is_no_part).collect();
    let commands = testkit::table().commands().iter();
    let missing: Vec<&str> = commands
        .map(|spec| spec.name)
        .filter(|name| !words.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/compatibility.md: {missing:?}"
    );
}
