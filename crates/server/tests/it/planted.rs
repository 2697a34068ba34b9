//! Bugs that are planted in whole servers, and the tests that have to find them: each test runs
//! again in a process whose servers have the bug, and must fail for the right reason.

use std::process::Command;

use server::planted::VARIABLE;

/// Runs one of the tests here with a planted bug. The test must fail with one of these messages.
fn is_found(bug: &str, test: &str, says: &[&str]) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    let output = again.env(VARIABLE, bug).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success(),
        "{test} does not find {bug}: {text}"
    );
    assert!(text.contains("running 1 test"), "no test is called {test}");
    let is_right = says.iter().any(|it| text.contains(it));
    assert!(
        is_right,
        "{test} fails for another reason than {bug}: {text}"
    );
}

#[test]
#[ignore = "takes a minute; needs root and loop devices"]
fn an_acknowledgement_before_the_sync_is_found_by_power_cuts() {
    let test = "power_cuts::a_power_cut_takes_nothing_that_was_promised";
    is_found("acknowledge-before-sync", test, &["acknowledged at always"]);
}

#[test]
#[ignore = "takes minutes"]
fn a_frame_that_is_applied_twice_is_found_by_comparing() {
    let test = "own_link::faults::all_hold_the_same_whatever_happened";
    is_found("apply-twice", test, &["they differ", "(2, 0)"]);
}

#[test]
#[ignore = "takes minutes"]
fn a_frame_that_is_left_out_after_a_break_is_found_by_comparing() {
    let test = "own_link::faults::all_hold_the_same_whatever_happened";
    is_found("skip-at-reconnect", test, &["they differ", "(2, 0)"]);
}
