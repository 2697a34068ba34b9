//! Checks licences and sources of the dependencies against `deny.toml`, the features of the shipped
//! server, and the dependencies of a server without features.
//!
//! `cargo deny` checks licences and sources, and more. Building it takes longer than a good part of
//! the gate, so these checks use cargo alone.

use std::path::Path;
use std::process::Command;

/// Packages that only the control group and the management port need. A server without features has
/// none of them.
const FOR_FEATURES: [&str; 2] = ["openraft", "tokio"];

/// Features that only tests use.
const FOR_TESTS: [&str; 3] = ["naive", "planted", "simulated"];

pub(super) fn faults(root: &Path) -> Vec<String> {
    faults_or_error(root).unwrap_or_else(|error| vec![format!("deny.toml:1: {error}")])
}

fn faults_or_error(root: &Path) -> Result<Vec<String>, String> {
    let text =
        std::fs::read_to_string(root.join("deny.toml")).map_err(|error| error.to_string())?;
    let allowed = allowed(&text);
    let all = [
        "--workspace",
        "-e",
        "normal,build,dev",
        "--format",
        "{p}|{l}",
    ];
    let mut faults = Vec::new();
    for line in tree(root, &all)?.lines() {
        let Some((package, licence)) = line.trim_end_matches(" (*)").split_once('|') else {
            continue;
        };
        if !is_allowed(licence, &allowed) {
            faults.push(format!("deny.toml:1: {package}: licence {licence:?}"));
        }
        // Packages of the registry have no source here; those of the workspace have a path.
        if package.contains("://") {
            faults.push(format!("deny.toml:1: {package}: not from the registry"));
        }
    }
    let shipped = [
        "--package",
        "server",
        "-e",
        "normal,build",
        "--format",
        "{p}|{f}",
    ];
    for line in tree(root, &shipped)?.lines() {
        let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') else {
            continue;
        };
        let mut features = features.split(',');
        if let Some(feature) = features.find(|feature| FOR_TESTS.contains(feature)) {
            faults.push(format!(
                "Cargo.toml:1: the server that ships has {package} with the feature {feature}"
            ));
        }
    }
    let bare = [
        "--package",
        "server",
        "--no-default-features",
        "-e",
        "normal,build",
        "--format",
        "{p}",
    ];
    let bare = tree(root, &bare)?;
    let packages = bare.lines().filter_map(|line| line.split(' ').next());
    for package in packages.filter(|package| FOR_FEATURES.contains(package)) {
        faults.push(format!(
            "Cargo.toml:1: the server without features has {package}"
        ));
    }
    faults.sort();
    faults.dedup();
    Ok(faults)
}

fn tree(root: &Path, words: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--prefix", "none"])
        .args(words)
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns the strings of the list `allow`.
fn allowed(deny: &str) -> Vec<String> {
    let list = deny.split_once("\nallow = [").map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Whether an SPDX expression can be satisfied. AND binds closer than OR; a `/` in an old
/// expression means OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let any = split(&expression, " OR ");
    any.iter().any(|all| {
        split(all, " AND ").iter().all(|one| {
            let one = one.trim();
            let inner = one
                .strip_prefix('(')
                .and_then(|rest| rest.strip_suffix(')'));
            match inner {
                Some(inner) => is_allowed(inner, allowed),
                None => allowed.iter().any(|name| name == one),
            }
        })
    })
}

/// Splits at separators outside of parentheses.
fn split<'e>(expression: &'e str, separator: &str) -> Vec<&'e str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for (at, _) in expression.match_indices(separator) {
        let before = &expression[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&expression[begin..at]);
            begin = at + separator.len();
        }
    }
    parts.push(&expression[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = allowed("[licenses]\nallow = [\n    \"MIT\",\n    \"ISC\",\n]\n");
        assert_eq!(allowed, ["MIT", "ISC"]);
        let is_allowed = |text| is_allowed(text, &allowed);
        assert!(is_allowed("MIT"));
        assert!(is_allowed("GPL-3.0/MIT"));
        assert!(is_allowed("ISC AND (Apache-2.0 OR ISC) AND MIT"));
        assert!(is_allowed("GPL-3.0 AND BSD-3-Clause OR MIT"));
        assert!(!is_allowed("ISC AND (Apache-2.0 OR GPL-3.0)"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed(""));
    }
}
