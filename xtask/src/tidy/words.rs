//! Words that do not belong in the source: markers of unfinished work, paths of one machine,
//! registries, and older words that the glossary (`docs/glossary.md`) replaces.
//!
//! Rust files may use an older word on at most as many lines as [`OLDER_WORDS`] says. A change that
//! removes uses lowers the number. At 0 the word is gone.

use super::sources::Source;

/// The words, and where each is a fault. They are put together from parts so that this file
/// contains none of them.
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

/// An older word (singular, lower case), the glossary's word, and the number of lines of Rust that
/// may still have the older word.
///
/// Two words that the glossary replaces are not counted, because they are plain English, too:
/// *told*, and *exchange*, which atomics do.
const OLDER_WORDS: &[(&str, &str, usize)] = &[
    ("courtesy", "background work", 0),
    ("guest", "background thread", 3),
    ("aside", "offload", 223),
    ("door", "listener", 3),
    ("departure", "held reply", 103),
    ("keeper", "persistence", 4),
    ("tracker", "client cache", 0),
    ("arrival", "bulk upload", 38),
    ("lap", "latency", 28),
];

/// This file names the older words itself.
const SELF: &str = "xtask/src/tidy/words.rs";

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
    // The lock file must name where packages come from.
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
    faults.extend(older_word_faults(sources, OLDER_WORDS));
    faults
}

/// Returns a fault for each older word that is used more often than allowed.
fn older_word_faults(sources: &[Source], words: &[(&str, &str, usize)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (older, better, lines_max) in words {
        let lines = sources
            .iter()
            .filter(|source| source.is_rust() && source.path != SELF)
            .flat_map(Source::lines)
            .filter(|(_, line)| words_of(line).any(|word| is_word(&word, older)))
            .count();
        if lines > *lines_max {
            faults.push(format!(
                "docs/glossary.md:1: {lines} lines say {older}, at most {lines_max} may: write {better}"
            ));
        }
    }
    faults
}

/// Whether it is the word or its plural.
fn is_word(word: &str, wanted: &str) -> bool {
    word == wanted || word.strip_suffix('s') == Some(wanted)
}

/// Returns the words of a line in lower case. The parts of `snake_case` and `CamelCase` are
/// separate words.
fn words_of(line: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in line.chars() {
        let begins = letter.is_uppercase() && was_lower;
        if begins || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.into_iter().filter(|word| !word.is_empty())
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

    #[test]
    fn older_words_may_become_fewer_only() {
        let check = |text: &str, lines_max: usize| {
            let source = Source {
                path: "a.rs".to_owned(),
                text: text.to_owned(),
            };
            older_word_faults(&[source], &[("keeper", "persistence", lines_max)])
        };
        assert!(check("let a = 1;", 0).is_empty());
        assert!(check("// a bookkeeper, and what was kept", 0).is_empty());
        for used in [
            "// the keeper's",
            "let my_keeper = 1;",
            "struct TheKeeper;",
            "fn keepers() {}",
        ] {
            assert_eq!(check(used, 0).len(), 1, "{used}");
            assert!(check(used, 1).is_empty(), "{used}");
        }
    }
}
