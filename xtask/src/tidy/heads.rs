//! Module headers: the first line of every Rust file says what the file is for.

use super::sources::Source;

pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    let modules = sources.iter().filter(|source| source.is_rust());
    let headless = modules.filter(|source| !has_head(&source.text));
    headless
        .map(|source| {
            format!(
                "{}:1: the first line says what a module is for, with //!",
                source.path
            )
        })
        .collect()
}

fn has_head(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first
        .strip_prefix("//!")
        .is_some_and(|head| !head.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_must_say_something() {
        assert!(has_head("//! What it is.\n"));
        assert!(!has_head("//!\n"));
        assert!(!has_head("use std::io;\n//! Late.\n"));
        assert!(!has_head(""));
    }
}
