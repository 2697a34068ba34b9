//! Links in documents: their targets inside the repository exist.

use std::path::{Component, Path, PathBuf};

use super::sources::Source;

pub(super) fn faults(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for (number, line) in source.lines() {
            for target in targets(line) {
                if !leads_somewhere(root, &source.path, target) {
                    faults.push(format!("{}:{number}: {target} leads nowhere", source.path));
                }
            }
        }
    }
    faults
}

/// Returns the targets in the round brackets of `[text](target)`.
pub(super) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The destination of a link in a document.
pub(super) enum Destination {
    /// The document itself, or another site.
    Elsewhere,
    /// A file, below the root of the repository.
    File(PathBuf),
    /// A path above the root.
    Above,
}

/// Returns the destination of a link in a document.
pub(super) fn destination(document: &str, target: &str) -> Destination {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return Destination::Elsewhere;
    }
    let directory = Path::new(document)
        .parent()
        .unwrap_or_else(|| Path::new(""));
    normalised(&directory.join(path)).map_or(Destination::Above, Destination::File)
}

fn leads_somewhere(root: &Path, document: &str, target: &str) -> bool {
    match destination(document, target) {
        Destination::Elsewhere => true,
        Destination::File(path) => root.join(path).exists(),
        Destination::Above => false,
    }
}

/// Returns the path without `..`, or `None` if it leaves the repository.
fn normalised(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !parts.pop() => return None,
            Component::Normal(part) => parts.push(part),
            _ => {}
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_a_line() {
        let line = "see [a](b/c.md#d), [e](f) and (not this)";
        assert_eq!(targets(line).collect::<Vec<_>>(), ["b/c.md#d", "f"]);
    }

    #[test]
    fn links_stay_inside() {
        let root = crate::workspace_root();
        assert!(leads_somewhere(&root, "docs/a.md", "../Cargo.toml#x"));
        assert!(!leads_somewhere(&root, "docs/a.md", "../../Cargo.toml"));
        assert!(!leads_somewhere(&root, "docs/a.md", "nothing.md"));
    }
}
