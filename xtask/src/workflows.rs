//! `cargo xtask check-workflows`: actionlint reads the workflow that makes a release, its expressions and its shell lines.
//!
//! It is built from its module: nothing has to be installed but Go.

use std::process::Command;

use crate::parts::{done, target_directory};
use crate::tools::{self, GoProgram};
use crate::workspace_root;

/// The version that is built.
const ACTIONLINT: GoProgram = GoProgram {
    name: "actionlint",
    module: "github.com/rhysd/actionlint/cmd/actionlint",
    version: "v1.7.12",
};

/// Lints all workflows.
///
/// # Errors
/// What could not be built or does not hold.
pub fn check() -> Result<(), String> {
    tools::SHELLCHECK.ensure()?;
    let work = std::path::absolute(target_directory().join("workflows"))
        .map_err(|error| format!("the directory of the linter: {error}"))?;
    let program = ACTIONLINT.build(&work)?;
    let mut lint = Command::new(program);
    done(lint.current_dir(workspace_root()), "the workflows")
}
