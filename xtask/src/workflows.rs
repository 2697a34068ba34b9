//! `cargo xtask check-workflows`: actionlint checks the release workflow with its expressions and
//! shell lines.
//!
//! actionlint is built from its module, so only Go has to be installed.

use std::process::Command;

use crate::parts::{done, target_directory};
use crate::tools::{self, GoProgram};
use crate::workspace_root;

/// Version of actionlint that is built.
const ACTIONLINT: GoProgram = GoProgram {
    name: "actionlint",
    module: "github.com/rhysd/actionlint/cmd/actionlint",
    version: "v1.7.12",
};

/// Lints all workflows.
///
/// # Errors
/// What could not be built, or which check failed.
pub fn check() -> Result<(), String> {
    tools::SHELLCHECK.ensure()?;
    let work = std::path::absolute(target_directory().join("workflows"))
        .map_err(|error| format!("the directory of the linter: {error}"))?;
    let program = ACTIONLINT.build(&work)?;
    let mut lint = Command::new(program);
    done(lint.current_dir(workspace_root()), "the workflows")
}
