//! Words that do not belong into the source: open ends, places of one machine, registries.

use super::sources::Source;

/// A word, and where it is a fault. The words are put together here so that this file has none.
const WORDS: &[(&[&str], Place)] = &[
    (&["TO", "DO"], Place::RustComment),
    (&["FIX", "ME"], Place::RustComment),
    (&["X", "XX:"], Place::RustComment),
    (&["/ro", "ot/"], Place::Anywhere),
    (&["/ho", "me/"], Place::Anywhere),
    (&["/tmp", "/wt"], Place::Anywhere),
    (&["/wo", "rk/"], Place::Anywhere),
    (&["crates", ".io/"], Place::Anywhere),
    (&["index.", "crates.io"], Place::Anywhere),
    (&["registry.", "npmjs"], Place::Anywhere),
    (&["files.", "pythonhosted"], Place::Anywhere),
    (&["proxy.", "golang"], Place::Anywhere),
    (&["repo.", "maven"], Place::Anywhere),
    (&["deb.", "debian"], Place::Anywhere),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In any file.
    Anywhere,
    /// In comments of Rust files.
    RustComment,
}

pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    let words: Vec<(String, Place)> = WORDS
        .iter()
        .map(|(parts, place)| (parts.concat(), *place))
        .collect();
    let mut faults = Vec::new();
    // The lock file names where packages come from: that is its purpose.
    for source in sources
        .iter()
        .filter(|source| !source.path.ends_with("Cargo.lock"))
    {
        for (number, line) in source.lines() {
            let found = words
                .iter()
                .find(|(word, place)| is_fault(source, line, word, *place));
            if let Some((word, _)) = found {
                faults.push(format!(
                    "{}:{number}: {word} does not belong here",
                    source.path
                ));
            }
        }
    }
    faults
}

fn is_fault(source: &Source, line: &str, word: &str, place: Place) -> bool {
    match place {
        Place::Anywhere => line.contains(word),
        Place::RustComment => {
            let comment = line.split_once("//").map(|(_, comment)| comment);
            source.is_rust() && comment.is_some_and(|comment| contains_word(comment, word))
        }
    }
}

fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ends_are_found_in_comments_only() {
        let check = |text: &str| {
            let source = Source {
                path: "a.rs".to_owned(),
                text: text.to_owned(),
            };
            faults(&[source]).len()
        };
        let open_end = ["TO", "DO"].concat();
        assert_eq!(check(&format!("let a = 1; // {open_end} later")), 1);
        assert_eq!(check(&format!("let a = \"{open_end}\";")), 0);
        assert_eq!(check("// nothing open"), 0);
        assert_eq!(check(&["see /ro", "ot/file"].concat()), 1);
    }
}
