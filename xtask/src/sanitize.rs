//! Tests under sanitizers, with the pinned compiler, which takes the unstable option when told that it
//! may.
//!
//! * Address: the rooms that have `unsafe`, all their unit tests. It sees accesses outside of a heap
//!   block or a stack variable, and after a block was freed. It does not see what happens inside of the
//!   store's own range of memory, where slots are given out without its knowledge, nor what the
//!   blocks of assembly touch.
//! * Thread: the store's stress tests, whose values check themselves. It sees plain memory that two
//!   threads use without an order between them. The standard library of the toolchain is not built
//!   for it, and its sources may not be there to be built: what orders threads inside of the
//!   library (a mutex that had to wait, a channel) is not seen, so data that only such a mutex
//!   guards is left out by name (`UNSEEN`). It knows nothing of fences, nor of assembly; the
//!   models under loom and shuttle are what speaks for those.

use std::process::Command;

use crate::parts::{cargo, target_directory};
use crate::toolchain;

/// What a mutex or channel of the standard library orders.
const UNSEEN: &str = "\
race:store::overflow::Overflow
race:store::databases::Databases
race:store::gate::Gate>::join
race:store::gate::Gate>::part
race:store::tally::Tallies>::join
race:store::tally::Tallies>::part
race:store::lazy_free
race:store::listeners
race:std::sync::mpmc
race:test::
";

/// Both, in order.
#[must_use]
pub fn commands() -> Vec<Command> {
    let rooms = ["-p", "store", "-p", "structures", "-p", "reactor"];
    let address = test("address", &rooms, &[]);
    let mut thread = test("thread", &["-p", "store"], &["stress::"]);
    let unseen = target_directory().join("sanitize").join("unseen.txt");
    // Without the file the sanitizer stops with an error of its own.
    let _written = std::fs::create_dir_all(target_directory().join("sanitize"))
        .and_then(|()| std::fs::write(&unseen, UNSEEN));
    let options = format!("suppressions={}", unseen.display());
    thread.env("TSAN_OPTIONS", options);
    vec![address, thread]
}

fn test(sanitizer: &str, rooms: &[&str], tests: &[&str]) -> Command {
    let host = toolchain::fact("host").unwrap_or_default();
    // An explicit target keeps the flags away from build scripts.
    let mut command = cargo(&["test", "--lib", "--target", &host]);
    command.args(rooms).arg("--").args(tests);
    // Optimised a little, or the tests take several times as long.
    let flags = format!(
        "-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer -Copt-level=1 -Cdebuginfo=1"
    );
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        .env(
            "CARGO_TARGET_DIR",
            target_directory().join("sanitize").join(sanitizer),
        );
    command
}
