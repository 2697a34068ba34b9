//! Checks that a second build of the server, from another directory, has the same bytes.

use std::path::Path;
use std::process::Command;

use super::build::{Build, Kind};
use super::files::{Outcome, make_directory, output, remove, run};
use super::target::Target;
use crate::parts::target_directory;
use crate::workspace_root;

/// Builds the last commit in its own directory, and compares it with the build of `cargo xtask
/// package`.
///
/// # Errors
/// Where they differ, or that nothing was built yet.
pub fn check() -> Outcome<()> {
    let first = target_directory().join("package-work/built/iolite");
    if !first.exists() {
        return Err("there is nothing to compare with; run cargo xtask package".to_owned());
    }
    let place = target_directory().join("package-second");
    let source = place.join("source");
    remove(&source)?;
    make_directory(&source)?;
    let archive = place.join("source.tar");
    let mut export = Command::new("git");
    export.current_dir(workspace_root());
    run(export
        .args(["archive", "--output"])
        .arg(&archive)
        .arg("HEAD"))?;
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(&source))?;
    let build = Build {
        source: &source,
        target: Target::own(),
        kind: Kind::Shared,
    };
    let second = build.make(&place.join("built"))?.program;
    compare(&first, &second)
}

fn compare(first: &Path, second: &Path) -> Outcome<()> {
    let sums = output(Command::new("sha256sum").args([first, second]))?;
    let mut sums = sums.lines().filter_map(|line| line.split(' ').next());
    let (one, other) = (sums.next(), sums.next());
    if one.is_some() && one == other {
        println!("both builds are {}", one.unwrap_or_default());
        return Ok(());
    }
    Err(format!(
        "{} and {} differ: {one:?}, {other:?}",
        first.display(),
        second.display()
    ))
}
