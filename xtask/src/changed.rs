//! Whether files changed that concern a part of the gate.
//!
//! All changes count since the commit where this branch left `origin/main`, and all that is not
//! committed. If there is no such branch, or this commit is on it, the previous commit is compared
//! with. If git cannot tell, as in a shallow clone, everything counts as changed. `GATE_BASE` names
//! another commit to compare with: CI sets it to the commit before a push of several commits.

use std::process::Command;

use crate::workspace_root;

/// Files that concern every part.
const ALWAYS: &[&str] = &[
    "xtask/src/parts.rs",
    "xtask/src/sanitize.rs",
    "rust-toolchain.toml",
];

/// Whether anything below these paths changed. Also `true` if git cannot tell.
#[must_use]
pub fn below(paths: &[&str]) -> bool {
    files().is_none_or(|files| {
        let is_about = |file: &String| paths.iter().chain(ALWAYS).any(|path| is_below(file, path));
        files.iter().any(is_about)
    })
}

fn is_below(file: &str, path: &str) -> bool {
    let rest = file.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the changed files, or `None` if git cannot tell.
fn files() -> Option<Vec<String>> {
    let base = base()?;
    let committed = git(&["diff", "--name-only", &base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let lines = committed.lines().chain(new.lines());
    Some(lines.map(str::to_owned).collect())
}

fn base() -> Option<String> {
    if let Ok(base) = std::env::var("GATE_BASE") {
        return Some(base);
    }
    let head = git(&["rev-parse", "HEAD"])?;
    match git(&["merge-base", "HEAD", "origin/main"]) {
        Some(base) if base != head => Some(base),
        _ => git(&["rev-parse", "--verify", "--quiet", "HEAD~1"]),
    }
}

/// Returns the output of git without trailing blanks, or `None` if it fails.
pub(crate) fn git(words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(words).current_dir(workspace_root());
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_itself_and_its_directories() {
        assert!(is_below("crates/store/src/lib.rs", "crates/store"));
        assert!(is_below("rust-toolchain.toml", "rust-toolchain.toml"));
        assert!(!is_below("crates/stored/src/lib.rs", "crates/store"));
    }
}
