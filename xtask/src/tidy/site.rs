//! The documentation as a site: every page is in a chapter, links lead to pages, and links to a
//! heading find it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::links::{Destination, destination, targets};
use super::sources::Source;

const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    let pages = || {
        let is_page = |one: &&Source| one.path.starts_with("docs/") && one.path.ends_with(".md");
        sources.iter().filter(is_page)
    };
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for summary in sources.iter().filter(|one| one.path == SUMMARY) {
        for (number, line) in summary.lines() {
            let again = targets(line).filter(|target| !listed.insert(*target));
            faults.extend(
                again.map(|target| format!("{SUMMARY}:{number}: {target} stands there twice")),
            );
        }
    }
    for page in pages().filter(|page| page.path != SUMMARY) {
        let name = page.path.trim_start_matches("docs/");
        if !listed.contains(name) {
            faults.push(format!("{}:1: no chapter of {SUMMARY} lists it", page.path));
        }
    }
    for page in pages() {
        for (number, line) in page.lines() {
            for target in targets(line) {
                if !stays(&page.path, target) {
                    faults.push(format!(
                        "{}:{number}: {target} is no part of the site",
                        page.path
                    ));
                }
                if !finds_heading(sources, &page.path, target) {
                    faults.push(format!("{}:{number}: no heading for {target}", page.path));
                }
            }
        }
    }
    faults
}

/// Whether a link leads to a file below docs/ or to another site.
fn stays(document: &str, target: &str) -> bool {
    match destination(document, target) {
        Destination::Elsewhere => true,
        Destination::File(path) => path.starts_with("docs"),
        Destination::Above => false,
    }
}

/// Whether a link to a heading of a page in the repository names an existing heading.
fn finds_heading(sources: &[Source], document: &str, target: &str) -> bool {
    let Some((path, heading)) = target.split_once('#') else {
        return true;
    };
    if path.contains("://") || !(path.is_empty() || path.ends_with(".md")) {
        return true;
    }
    let path = match destination(document, path) {
        Destination::File(path) => path,
        Destination::Elsewhere if path.is_empty() => PathBuf::from(document),
        Destination::Elsewhere | Destination::Above => return true,
    };
    let Some(page) = sources.iter().find(|one| Path::new(&one.path) == path) else {
        // Another check reports links whose page does not exist.
        return true;
    };
    let mut headings = page.text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line.trim_start_matches('#')) == heading)
}

/// Returns the name of a heading in links: lower case, dashes for blanks, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|char| match char {
        ' ' => Some('-'),
        '-' | '_' => Some(char),
        char if char.is_alphanumeric() => Some(char.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn pages_without_a_chapter_and_links_without_a_heading_are_told() {
        let sources = [
            source(SUMMARY, "- [A](a.md)\n- [Again](a.md)\n"),
            source(
                "docs/a.md",
                "# A\n## What is `refused`\n[x](#what-is-refused) [y](b.md#c)\n[z](../a.rs)\n",
            ),
            source("docs/b.md", "# B\n"),
            source("README.md", "[z](docs/b.md#nothing)\n"),
        ];
        assert_eq!(
            faults(&sources),
            [
                "docs/SUMMARY.md:2: a.md stands there twice",
                "docs/b.md:1: no chapter of docs/SUMMARY.md lists it",
                "docs/a.md:3: no heading for b.md#c",
                "docs/a.md:4: ../a.rs is no part of the site",
            ]
        );
    }
}
