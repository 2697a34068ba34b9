//! The files of a package as they lie below the root of a machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Package;
use super::files::{Outcome, copy, output, write};
use crate::workspace_root;

/// Files of the repository, and where they lie on a machine.
const FILES: [(&str, &str); 8] = [
    ("packaging/iolite.conf", "etc/iolite/iolite.conf"),
    (
        "packaging/systemd/iolite.service",
        "usr/lib/systemd/system/iolite.service",
    ),
    (
        "packaging/systemd/iolite@.service",
        "usr/lib/systemd/system/iolite@.service",
    ),
    ("packaging/sysusers.conf", "usr/lib/sysusers.d/iolite.conf"),
    ("README.md", "usr/share/doc/iolite/README.md"),
    ("CHANGELOG.md", "usr/share/doc/iolite/CHANGELOG.md"),
    ("LICENSE-APACHE", "usr/share/doc/iolite/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/iolite/LICENSE-MIT"),
];

/// Shells, and where their completions lie.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/iolite"),
    ("zsh", "usr/share/zsh/vendor-completions/_iolite"),
    ("fish", "usr/share/fish/vendor_completions.d/iolite.fish"),
];

/// Tools of the binary that have a page of the manual of their own.
const MANUALS: [&str; 8] = [
    "analyze", "bench", "check", "cli", "export", "import", "migrate", "top",
];

/// Puts the files together; where they are.
pub(super) fn make(package: &Package, name: &str, program: &Path) -> Outcome<PathBuf> {
    let tree = package.work.join(name);
    copy(program, &tree.join("usr/bin/iolite"))?;
    set_mode(&tree.join("usr/bin/iolite"), 0o755)?;
    for (from, to) in FILES {
        copy(&workspace_root().join(from), &tree.join(to))?;
        set_mode(&tree.join(to), 0o644)?;
    }
    for (shell, path) in COMPLETIONS {
        let text = output(Command::new(program).args(["completions", shell]))?;
        write(&tree.join(path), &text)?;
    }
    let manual = output(Command::new(program).arg("man"))?;
    write(&tree.join("usr/share/man/man1/iolite.1"), &manual)?;
    for tool in MANUALS {
        let manual = output(Command::new(program).args(["man", tool]))?;
        let path = format!("usr/share/man/man1/iolite-{tool}.1");
        write(&tree.join(path), &manual)?;
    }
    let licences = third_party()?;
    write(&tree.join("usr/share/doc/iolite/THIRD-PARTY.md"), &licences)?;
    Ok(tree)
}

/// The libraries that are in the binary, with their versions and licences: a line each, from what cargo knows.
fn third_party() -> Outcome<String> {
    let words = [
        "tree",
        "--package",
        "server",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p} | {l} | {r}",
    ];
    let text = output(&mut crate::parts::cargo(&words))?;
    let mut lines: Vec<String> = text
        .lines()
        // Rooms of this repository are shown with their paths.
        .filter(|line| !line.contains("(/") && !line.is_empty())
        .map(|line| format!("| {} |", line.replace(" (*)", "")))
        .collect();
    lines.sort();
    lines.dedup();
    Ok(format!(
        "# Libraries in the binary\n\n| library | licence | source |\n|---|---|---|\n{}\n",
        lines.join("\n")
    ))
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Outcome<()> {
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.map_err(|error| format!("{}: {error}", path.display()))
}
