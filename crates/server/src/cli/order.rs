//! `import` and `export`: the word, a file, and the options of the server.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::StartError;
use crate::keeping::offline::Form;

/// An order other than to serve.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The order.
    pub(super) wish: Wish,
    /// The file.
    pub(super) file: PathBuf,
    /// Whether the report is JSON.
    pub(super) is_json: bool,
    /// The remaining options, which are the server's.
    pub(super) options: Vec<OsString>,
}

/// What to do with the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Import,
    /// In this form, and in this version of RDB, if one is given.
    Export(Form, Option<u16>),
}

impl Order {
    /// Reads the order that the options begin with, if there is one. Its file is the first word
    /// after it, or the last word if options come first.
    pub(super) fn read(options: &[OsString]) -> Result<Option<Self>, StartError> {
        let Some((word, rest)) = options.split_first() else {
            return Ok(None);
        };
        let mut rest = rest.to_vec();
        let wish = match word.as_bytes() {
            b"import" => Wish::Import,
            b"export" => Wish::Export(take_form(&mut rest), take_version(&mut rest)?),
            _ => return Ok(None),
        };
        let is_json = take(&mut rest, "--json");
        let is_first = rest.first().is_some_and(|word| !is_option(word));
        let file = match is_first {
            true => Some(rest.remove(0)),
            false => rest.pop().filter(|word| !is_option(word)),
        };
        let usage = || {
            let word = word.display();
            StartError(format!(
                "Usage: iolite {word} FILE [options]; see iolite --help"
            ))
        };
        Ok(Some(Self {
            wish,
            file: file.map(PathBuf::from).ok_or_else(usage)?,
            is_json,
            options: rest,
        }))
    }
}

fn is_option(word: &OsString) -> bool {
    word.as_bytes().starts_with(b"-")
}

/// Removes a flag from the options. Returns whether it was there.
fn take(options: &mut Vec<OsString>, flag: &str) -> bool {
    let found = options.iter().position(|word| word == flag);
    if let Some(at) = found {
        options.remove(at);
    }
    found.is_some()
}

/// Removes `--aof` from the options.
fn take_form(options: &mut Vec<OsString>) -> Form {
    match take(options, "--aof") {
        true => Form::Aof,
        false => Form::Rdb,
    }
}

/// Removes `--rdb-version` and its number from the options.
fn take_version(options: &mut Vec<OsString>) -> Result<Option<u16>, StartError> {
    let Some(at) = options.iter().position(|word| word == "--rdb-version") else {
        return Ok(None);
    };
    let number = options
        .get(at + 1)
        .and_then(|word| word.to_str()?.parse().ok());
    let number: u16 =
        number.ok_or_else(|| StartError("--rdb-version needs a number: 9 to 12".to_owned()))?;
    options.drain(at..at + 2);
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &[&str]) -> Result<Option<Order>, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Order::read(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_stands_first_or_last() {
        let expected = Order {
            wish: Wish::Export(Form::Rdb, Some(10)),
            file: "a.rdb".into(),
            is_json: false,
            options: vec!["--dir".into(), "/data".into()],
        };
        for words in [
            ["export", "a.rdb", "--rdb-version", "10", "--dir", "/data"],
            ["export", "--dir", "/data", "a.rdb", "--rdb-version", "10"],
            ["export", "--dir", "/data", "--rdb-version", "10", "a.rdb"],
        ] {
            assert_eq!(order(&words).unwrap().as_ref(), Some(&expected));
        }
        let export = order(&["export", "--aof", "copy", "--dir", "/data"]);
        let export = export.unwrap().unwrap();
        assert_eq!(export.wish, Wish::Export(Form::Aof, None));
        assert_eq!(export.file, PathBuf::from("copy"));
        assert_eq!(export.options, ["--dir", "/data"]);
        let import = order(&["import", "a.rdb", "a.conf", "--port", "1"])
            .unwrap()
            .unwrap();
        assert_eq!(import.wish, Wish::Import);
        assert_eq!(import.options, ["a.conf", "--port", "1"]);
        for words in [["import", "a.rdb", "--json"], ["import", "--json", "a.rdb"]] {
            let import = order(&words).unwrap().unwrap();
            assert!(import.is_json && import.options.is_empty(), "{words:?}");
            assert_eq!(import.file, PathBuf::from("a.rdb"));
        }
    }

    #[test]
    fn what_is_no_order_is_left_to_the_server() {
        assert_eq!(order(&[]), Ok(None));
        assert_eq!(order(&["./import", "a.rdb"]), Ok(None));
        assert_eq!(order(&["--dir", "import"]), Ok(None));
        assert!(
            order(&["import"])
                .unwrap_err()
                .starts_with("Usage: iolite import")
        );
        assert!(order(&["export", "--daemonize"]).is_err());
        assert!(order(&["export", "a", "--rdb-version", "x"]).is_err());
    }
}
