//! The tidy check as a test, so that plain `cargo test` runs it.

#[test]
fn the_source_is_tidy() {
    let faults = xtask::tidy::faults(&xtask::workspace_root());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
