//! The wheel for Python: the server, and a plugin for pytest.

use std::path::Path;
use std::process::Command;

use super::files::{Outcome, output};
use super::{Package, glibc};
use crate::workspace_root;

/// Writes the wheel next to the packages.
pub(super) fn make(package: &Package, program: &Path) -> Outcome<()> {
    let (major, minor) = glibc::needed(package.target, program)?;
    let platform = format!("manylinux_{major}_{minor}_{}", package.target.arch);
    let mut python = Command::new("python3");
    python
        .arg(workspace_root().join("packaging/python/wheel.py"))
        .arg(program)
        .args([&package.version, &platform, &package.epoch.0])
        .arg(&package.out);
    output(&mut python).map(|_| ())
}
