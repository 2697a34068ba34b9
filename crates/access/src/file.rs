//! Users in a file: one line each, `user NAME RULES…`, as ACL LIST shows them. Spaces separate the
//! words. A quote has no special meaning.

use std::fmt;

use crate::catalog::Catalog;
use crate::error::RuleError;
use crate::rules::{Defaults, Rules, merge_selectors};
use crate::users::is_valid_name;

/// Users with their rules.
pub type Parsed = Vec<(Vec<u8>, Rules)>;

/// The error of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The line does not define a user.
    NoUser,
    /// The name contains spaces or zero bytes.
    Name(Vec<u8>),
    /// The user was defined before.
    Duplicate(Vec<u8>),
    /// A parenthesis is not closed.
    Parenthesis,
    /// A rule is invalid.
    Rule(Vec<u8>, RuleError),
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUser => {
                out.write_str("should start with user keyword followed by the username")
            }
            Self::Name(name) => {
                let name = String::from_utf8_lossy(name);
                write!(out, "username '{name}' contains invalid characters")
            }
            Self::Duplicate(name) => {
                let name = String::from_utf8_lossy(name);
                write!(out, "Duplicate user '{name}' found")
            }
            Self::Parenthesis => out.write_str("Unmatched parenthesis in selector definition"),
            Self::Rule(rule, error) => {
                let rule = String::from_utf8_lossy(rule);
                write!(out, "'{rule}': {error}")
            }
        }
    }
}

impl std::error::Error for FileError {}

/// Parses the users of a file. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// Each wrong line, by its number. The first line is number 1.
pub fn parse_file(
    text: &[u8],
    catalog: &Catalog,
    defaults: Defaults,
) -> Result<Parsed, Vec<(usize, FileError)>> {
    let (mut users, mut errors) = (Parsed::new(), Vec::new());
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match parse_line(line, &users, catalog, defaults) {
            Ok(user) => users.push(user),
            Err(error) => errors.push((at + 1, error)),
        }
    }
    if errors.is_empty() {
        Ok(users)
    } else {
        Err(errors)
    }
}

fn parse_line(
    line: &[u8],
    known: &Parsed,
    catalog: &Catalog,
    defaults: Defaults,
) -> Result<(Vec<u8>, Rules), FileError> {
    let words = line.split(|byte| *byte == b' ');
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
    let [b"user", definition @ ..] = words.as_slice() else {
        return Err(FileError::NoUser);
    };
    parse_definition(definition, known, catalog, defaults)
}

/// Parses a user from its name and rules, as a directive `user` has them. `known` are the users
/// defined before it.
///
/// # Errors
/// The error of the line.
pub fn parse_definition(
    words: &[&[u8]],
    known: &Parsed,
    catalog: &Catalog,
    defaults: Defaults,
) -> Result<(Vec<u8>, Rules), FileError> {
    let [name, rules @ ..] = words else {
        return Err(FileError::NoUser);
    };
    if !is_valid_name(name) {
        return Err(FileError::Name(name.to_vec()));
    }
    if known.iter().any(|(known, _)| known == name) {
        return Err(FileError::Duplicate(name.to_vec()));
    }
    let merged = merge_selectors(rules).map_err(|_| FileError::Parenthesis)?;
    let mut rules = Rules::new(defaults);
    for rule in merged {
        let applied = rules.apply(&rule, catalog, defaults);
        applied.map_err(|error| FileError::Rule(rule.to_vec(), error))?;
    }
    Ok((name.to_vec(), rules))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::catalog::tests::small;

    #[test]
    fn lines_are_users() {
        let text =
            b"# who is who\nuser a on >x ~* +get ( ~b +set )\r\n\n  user default on nopass \n";
        let users = parse_file(text, small(), Defaults::default()).unwrap();
        let names: Vec<_> = users.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [b"a".as_slice(), b"default"]);
        assert_eq!(users[0].1.selectors().len(), 2);
        let shown = [b"user a ", users[0].1.text().as_slice()].concat();
        let again = parse_file(&shown, small(), Defaults::default()).unwrap();
        assert_eq!(again[0], users[0]);
    }

    #[test]
    fn quotes_are_part_of_a_word() {
        let line = b"user a\"b on ~c'd ~\"e &\\x";
        let users = parse_file(line, small(), Defaults::default()).unwrap();
        assert_eq!(users[0].0, b"a\"b");
        let shown = String::from_utf8(users[0].1.text()).unwrap();
        assert!(shown.contains("~c'd ~\"e resetchannels &\\x"), "{shown}");
    }

    #[test]
    fn every_wrong_line_is_named() {
        let text =
            b"user a on\nuser a off\nusers\nuser b +none\nuser c (+get\nuser d \"x\nuser e\0f on";
        let errors = parse_file(text, small(), Defaults::default()).unwrap_err();
        let shown: Vec<_> = errors
            .iter()
            .map(|(line, error)| format!("{line}: {error}"))
            .collect();
        let expected = [
            "2: Duplicate user 'a' found",
            "3: should start with user keyword followed by the username",
            "4: '+none': Unknown command or category name in ACL",
            "5: Unmatched parenthesis in selector definition",
            "6: '\"x': Syntax error",
            "7: username 'e\0f' contains invalid characters",
        ];
        assert_eq!(shown, expected);
    }
}
