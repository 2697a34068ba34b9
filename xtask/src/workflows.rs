//! `cargo xtask check-workflows`: actionlint reads the workflow that makes a release, its expressions and its shell lines.
//!
//! It is built from its module: nothing has to be installed but Go.

use std::process::Command;

use crate::parts::{done, target_directory};
use crate::{tools, workspace_root};

/// The version that is built.
const ACTIONLINT: &str = "v1.7.12";

/// Lints all workflows.
///
/// # Errors
/// What could not be built or does not hold.
pub fn check() -> Result<(), String> {
    tools::GO.ensure()?;
    tools::SHELLCHECK.ensure()?;
    let work = std::path::absolute(target_directory().join("workflows"))
        .map_err(|error| format!("the directory of the linter: {error}"))?;
    let program = work
        .join(format!("actionlint-{ACTIONLINT}"))
        .join("actionlint");
    if !program.is_file() {
        println!("building actionlint {ACTIONLINT}");
        let mut install = Command::new("go");
        install.args([
            "install",
            &format!("github.com/rhysd/actionlint/cmd/actionlint@{ACTIONLINT}"),
        ]);
        let directory = program.parent().unwrap_or(&work);
        done(install.env("GOBIN", directory), "actionlint")?;
    }
    let mut lint = Command::new(program);
    done(lint.current_dir(workspace_root()), "the workflows")
}
