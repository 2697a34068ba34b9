//! Cycles of imports: how many files of one room can be understood only together.
//!
//! A file imports another file of its room if a path in its code leads there. The path begins with
//! `crate::`, `self::` or `super::`, in a `use` (braces are followed) or in the middle of the code.
//! The longest prefix of the path that names a file counts. A child that uses something of its
//! parent thus imports the parent, and a parent that re-exports or uses something of a child
//! imports the child. `mod child;` alone is not an import; `pub use child::Thing` is one, as is any
//! path that begins with the name of a child. The following are left out: comments, files of tests
//! (`tests.rs`, `testing.rs`, `tests/`), the roots of binaries, and everything from a
//! `#[cfg(test)]` before a `mod` with a body to the end of the file. A cycle is a strongly
//! connected component.
//!
//! A re-export is followed only to the file with the `pub use`: `use crate::Thing` imports
//! `lib.rs`. If a room's `lib.rs` re-exports everything, it therefore closes a cycle with each file
//! that uses it, and that counts.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::Source;

/// Maximum number of files in a cycle, in every room.
const FILES_MAX: usize = 8;

/// The largest cycle of a room.
struct Circle {
    /// The room.
    room: String,
    /// Number of files of the room, without tests.
    files_count: usize,
    /// The files of the cycle, as paths below `src`.
    files: Vec<String>,
}

/// Returns the cycles that exceed the maximum.
pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    measure(sources)
        .into_iter()
        .filter_map(|circle| {
            let count = circle.files.len();
            let (room, first) = (&circle.room, circle.files.first()?);
            (count > FILES_MAX).then(|| {
                let root = root_of(room);
                let files = circle.files.join(" ");
                format!("{root}{first}:1: a circle of {count} files in {room}, at most {FILES_MAX}: {files}")
            })
        })
        .collect()
}

/// Returns the largest cycle of each room, one line per room.
pub(super) fn summary(sources: &[Source]) -> Vec<String> {
    let line = |circle: &Circle| {
        let (room, files) = (&circle.room, circle.files_count);
        let count = circle.files.len();
        format!("{room}: largest circle {count} of {files} files")
    };
    measure(sources).iter().map(line).collect()
}

/// Returns the largest cycle of each room.
fn measure(sources: &[Source]) -> Vec<Circle> {
    let mut rooms: BTreeMap<&str, BTreeMap<Vec<&str>, &Source>> = BTreeMap::new();
    for source in sources {
        if let Some((room, file)) = room_and_file(&source.path) {
            let modules = rooms.entry(room).or_default();
            modules.insert(module_of(file), source);
        }
    }
    let circle = |(room, modules): (&str, BTreeMap<Vec<&str>, &Source>)| Circle {
        room: room.to_owned(),
        files_count: modules.len(),
        files: largest(&modules)
            .into_iter()
            .filter_map(|module| room_and_file(&modules.get(&module)?.path))
            .map(|(_, file)| file.to_owned())
            .collect(),
    };
    rooms.into_iter().map(circle).collect()
}

fn root_of(room: &str) -> String {
    if room == "xtask" {
        "xtask/src/".to_owned()
    } else {
        format!("crates/{room}/src/")
    }
}

/// Returns the room of a file and its path below `src`, or `None` if the file does not count.
fn room_and_file(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    let (room, file) = path.split_once("/src/")?;
    let name = file.rsplit('/').next()?;
    // The root of a binary is a crate of its own, above the library.
    let is_left_out = name == "main.rs"
        || file.starts_with("bin/")
        || name == "testing.rs"
        || name.ends_with("tests.rs")
        || file.starts_with("tests/")
        || file.contains("/tests/");
    (file.ends_with(".rs") && !room.contains('/') && !is_left_out).then_some((room, file))
}

/// Returns the path of a file's module: `engine/visit.rs` and `engine/visit/mod.rs` are `[engine,
/// visit]`.
fn module_of(file: &str) -> Vec<&str> {
    let mut words: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if matches!(words.last(), Some(&("lib" | "mod"))) {
        words.pop();
    }
    words
}

/// Returns the modules of the largest cycle, in order.
fn largest<'a>(modules: &BTreeMap<Vec<&'a str>, &'a Source>) -> Vec<Vec<&'a str>> {
    let names: Vec<&Vec<&str>> = modules.keys().collect();
    let imports: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|(module, source)| {
            let code = code_of(&source.text);
            let paths = paths(&code).into_iter();
            let targets = paths.filter_map(|path| target(&names, module, &path));
            targets.filter(|at| names[*at] != module).collect()
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> =
        (0..names.len()).map(|from| reach(&imports, from)).collect();
    let circle = |at: usize| {
        let others = reached[at].iter().copied();
        others
            .filter(|other| reached[*other].contains(&at))
            .collect()
    };
    let circles = (0..names.len()).map(circle);
    let largest: Vec<usize> = circles.max_by_key(Vec::len).unwrap_or_default();
    largest.into_iter().map(|at| names[at].clone()).collect()
}

/// Returns the modules that can be reached from a module. The module itself is among them only if
/// it is in a cycle.
fn reach(imports: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<usize> = imports[from].iter().copied().collect();
    while let Some(at) = left.pop() {
        if seen.insert(at) {
            left.extend(&imports[at]);
        }
    }
    seen
}

/// Returns the module that a path in `module` leads to: the longest prefix that is a file.
fn target(names: &[&Vec<&str>], module: &[&str], path: &[String]) -> Option<usize> {
    let mut words = path.iter().map(String::as_str).peekable();
    let mut whole: Vec<&str> = match *words.peek()? {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        child => {
            let mut whole = module.to_vec();
            whole.push(child);
            if !names.contains(&&whole) {
                return None;
            }
            module.to_vec()
        }
    };
    while let Some(word) = words.next_if(|word| matches!(*word, "crate" | "self" | "super")) {
        if word == "super" {
            whole.pop();
        }
    }
    let root = whole.len();
    whole.extend(words);
    (root.min(whole.len())..=whole.len())
        .rev()
        .find_map(|len| names.iter().position(|name| **name == whole[..len]))
}

/// Returns the code of a file without comments, string literals and unit tests.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,") {
            while lines.peek().is_some_and(|next| is_of_attribute(next)) {
                lines.next();
            }
            // A module in its own file is one line; one with a body extends to the end.
            let begins = lines.peek().copied().unwrap_or_default();
            if begins.starts_with("mod ") && begins.ends_with('{') {
                break;
            }
            if begins.starts_with("mod ") {
                lines.next();
            }
            continue;
        }
        let line = line.split("//").next().unwrap_or_default();
        let outside = line.split('"').step_by(2);
        code.extend(outside.flat_map(|part| [part, " "]));
        code.push('\n');
    }
    code
}

/// Whether a line is a further attribute of an outermost module, or a part of one.
fn is_of_attribute(line: &str) -> bool {
    line.starts_with("#[") || line.starts_with("    ") || line == ")]"
}

/// Returns all paths in some code, word by word, with braces after `::` expanded.
fn paths(code: &str) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_word = is_word(&tokens[at]);
        let begins = is_word && (at == 0 || tokens[at - 1] != "::");
        if begins && tokens.get(at + 1).is_some_and(|next| next == "::") {
            at = path(&tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path and those in its braces, and returns where it ends.
fn path(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    found: &mut Vec<Vec<String>>,
) -> usize {
    let mut words = before.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| *token != "}") {
                    at = if is_word(token) {
                        path(tokens, at, &words, found)
                    } else {
                        at + 1
                    };
                }
                return at + 1;
            }
            Some(token) if is_word(token) => words.push(token.to_owned()),
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    found.push(words);
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Returns words, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut characters = code.chars().peekable();
    while let Some(first) = characters.next() {
        let is_in_word = |character: &char| character.is_alphanumeric() || *character == '_';
        let mut token = String::from(first);
        if is_in_word(&first) {
            while let Some(next) = characters.next_if(is_in_word) {
                token.push(next);
            }
        } else if first == ':' && characters.next_if_eq(&':').is_some() {
            token.push(':');
        } else if first.is_whitespace() {
            continue;
        }
        tokens.push(token);
    }
    tokens
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

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(file, text)| source(&format!("crates/attic/src/{file}"), text))
            .collect();
        measure(&sources).remove(0).files
    }

    #[test]
    fn a_circle_is_found_through_braces_parents_and_paths_in_code() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
            ("a.rs", "use crate::{b::{self, Thing}, std::x};\n"),
            ("b.rs", "fn f() { super::c::g(); }\n"),
            ("c/mod.rs", "mod inner;\npub use inner::Thing;\n"),
            ("c/inner.rs", "use crate::a::Other;\n"),
            ("d.rs", "use crate::a::Other;\n"),
        ];
        assert_eq!(circle(&files), ["a.rs", "b.rs", "c/mod.rs", "c/inner.rs"]);
    }

    #[test]
    fn comments_texts_and_tests_are_no_imports() {
        let files = [
            ("a.rs", "use crate::b::Thing;\nuse crate::c::Thing;\n"),
            (
                "b.rs",
                "// crate::a\n/// [`crate::a`]\nconst A: &str = \"crate::a::x\";\n\
                 #[cfg(test)]\nmod tests {\n    use crate::a::Other;\n}\n",
            ),
            (
                "c.rs",
                "use crate::b::Thing;\n#[cfg(all(test, not(loom)))]\n#[expect(\n    dead_code,\n)]\n\
                 mod tests {\n    use super::a::Other;\n}\n",
            ),
            ("b/tests.rs", "use crate::a::Other;\n"),
        ];
        assert!(circle(&files).is_empty());
    }

    #[test]
    fn a_parent_that_only_has_a_child_does_not_import_it() {
        let child = ("a/b.rs", "use super::Thing;\n");
        assert!(circle(&[("a.rs", "mod b;\n"), child]).is_empty());
        let both = [("a.rs", "mod b;\npub use b::Other;\n"), child];
        assert_eq!(circle(&both), ["a.rs", "a/b.rs"]);
    }

    #[test]
    fn a_circle_of_more_files_is_a_fault() {
        let file = |at: usize| {
            let next = (at + 1) % (FILES_MAX + 1);
            source(
                &format!("crates/attic/src/m{at}.rs"),
                &format!("use crate::m{next}::Thing;\n"),
            )
        };
        let sources: Vec<Source> = (0..=FILES_MAX).map(file).collect();
        let expected = "crates/attic/src/m0.rs:1: a circle of 9 files in attic, at most 8: \
                        m0.rs m1.rs m2.rs m3.rs m4.rs m5.rs m6.rs m7.rs m8.rs";
        assert_eq!(faults(&sources), [expected]);
        assert!(faults(&sources[..FILES_MAX]).is_empty());
    }
}
