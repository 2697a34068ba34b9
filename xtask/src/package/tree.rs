//! The files of a package, at their paths below the root of a machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Package;
use super::files::{Outcome, copy, output, write};
use super::target::Target;
use crate::workspace_root;

/// Files of the repository, and their paths on a machine.
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

/// Shells, and the paths of their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/iolite"),
    ("zsh", "usr/share/zsh/vendor-completions/_iolite"),
    ("fish", "usr/share/fish/vendor_completions.d/iolite.fish"),
];

/// Commands of the binary with their own manual page. A page that another page names must be among
/// them.
const MANUALS: [&str; 22] = [
    "analyze",
    "bench",
    "bench report",
    "bench suite",
    "check",
    "cli",
    "cluster",
    "cluster create",
    "cluster drain",
    "cluster join",
    "cluster leave",
    "cluster recover",
    "cluster status",
    "cluster undrain",
    "cluster witness",
    "completions",
    "doctor",
    "export",
    "import",
    "man",
    "migrate",
    "top",
];

/// Puts the files together, and returns their directory.
pub(super) fn make(package: &Package, name: &str, program: &Path) -> Outcome<PathBuf> {
    let tree = package.work.join(name);
    copy(program, &tree.join("usr/bin/iolite"))?;
    set_mode(&tree.join("usr/bin/iolite"), 0o755)?;
    for (from, to) in FILES {
        copy(&workspace_root().join(from), &tree.join(to))?;
        set_mode(&tree.join(to), 0o644)?;
    }
    for (shell, path) in COMPLETIONS {
        let text = output(package.target.command(program).args(["completions", shell]))?;
        write(&tree.join(path), &text)?;
    }
    manuals(package.target, program, &tree.join("usr/share/man/man1"))?;
    let licences = third_party(package.target)?;
    write(&tree.join("usr/share/doc/iolite/THIRD-PARTY.md"), &licences)?;
    Ok(tree)
}

/// Writes the manual pages.
fn manuals(target: Target, program: &Path, directory: &Path) -> Outcome<()> {
    let mut pages = Vec::new();
    for words in [""].into_iter().chain(MANUALS) {
        let mut ask = target.command(program);
        ask.arg("man").args(words.split_whitespace());
        let name = ["iolite"].into_iter().chain(words.split_whitespace());
        let name = name.collect::<Vec<_>>().join("-");
        pages.push((name, output(&mut ask)?));
    }
    for (name, page) in &pages {
        let missing = named_in(page).find(|other| pages.iter().all(|(known, _)| known != other));
        if let Some(missing) = missing {
            return Err(format!("{name}(1) names {missing}(1), which is not made"));
        }
        write(&directory.join(format!("{name}.1")), page)?;
    }
    Ok(())
}

/// Returns the pages that a page names, as in `iolite\-cluster\-status(1)`.
fn named_in(page: &str) -> impl Iterator<Item = String> {
    let words = page.split_whitespace();
    let names = words.filter_map(|word| word.strip_suffix("(1)"));
    let names = names.map(|name| name.replace("\\-", "-"));
    // The subcommand `help` has no page: it prints the pages.
    names.filter(|name| name.starts_with("iolite-") && !name.ends_with("-help"))
}

/// Returns the libraries in the binary with versions and licences, one line each, from what cargo
/// knows.
fn third_party(target: Target) -> Outcome<String> {
    let triple = target.triple("gnu");
    let words = [
        "tree",
        "--target",
        &triple,
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
        // Rooms of this repository are listed with their paths.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_named_are_found() {
        let page = ".TP\niolite\\-cluster\\-status(1)\nWho\n.TP\niolite\\-cluster\\-help(1)\nsee other(1)\n";
        assert_eq!(
            named_in(page).collect::<Vec<_>>(),
            ["iolite-cluster-status"]
        );
    }
}
