//! The manifest of an append-only directory: which files make up the log, and in which order.
//!
//! ```text
//!   file appendonly.aof.3.base.rdb seq 3 type b      everything up to some moment; one at most
//!   file appendonly.aof.7.incr.aof seq 7 type i      what came then, by rising numbers
//!   file appendonly.aof.2.base.rdb seq 2 type h      of no use any more
//! ```
//!
//! Lines consist of words as in the configuration: a name with blanks is quoted. Lines that begin
//! with `#` are comments; unknown keys come from newer servers and are skipped.
//!
//! The manifest is in this room because both servers and tools read it, and its first file is an
//! RDB file.

use std::fmt;

use base::number::parse_u64;
use base::words::{quote_unless_plain, split};

/// Maximum length of a manifest's line.
const LINE_BYTES_MAX: usize = 1024;
/// Keys and values of the three parts that every line has.
const WORDS_MIN: usize = 6;

/// The files of a directory that are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The file with the initial data.
    pub base: Option<ManifestFile>,
    /// The files with the following writes, in order.
    pub increments: Vec<ManifestFile>,
    /// The files to be deleted.
    pub history: Vec<ManifestFile>,
}

/// A file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Its name in the directory.
    pub name: String,
    /// Its number among those of its kind.
    pub sequence: u64,
}

/// A fault in a manifest, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFault {
    /// Line number from 1 on; 0 for the manifest as a whole.
    pub line: usize,
    /// Description of the fault.
    pub what: &'static str,
}

impl fmt::Display for ManifestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ManifestFault {}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// [`ManifestFault`] if Redis refuses it as well.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestFault> {
        let mut manifest = Self::default();
        let mut count = 0;
        for (number, line) in (1..).zip(lines(text)) {
            let fault = |what| ManifestFault { line: number, what };
            if line.first() == Some(&b'#') {
                continue;
            }
            manifest.add(line).map_err(fault)?;
            count += 1;
        }
        if count == 0 {
            let what = "there is no file in it";
            return Err(ManifestFault { line: 0, what });
        }
        Ok(manifest)
    }

    /// Returns the files to read, in order.
    pub fn files(&self) -> impl Iterator<Item = &ManifestFile> {
        self.base.iter().chain(&self.increments)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if line.len() > LINE_BYTES_MAX {
            return Err("it is too long");
        }
        let words = split(line).map_err(|_| "quotes are not balanced")?;
        if words.len() < WORDS_MIN || !words.len().is_multiple_of(2) {
            return Err("it has not the form 'file NAME seq NUMBER type KIND'");
        }
        let (mut name, mut sequence, mut kind) = (None, 0, None);
        for pair in words.chunks_exact(2) {
            let (key, value) = (&pair[0], &pair[1]);
            if key.eq_ignore_ascii_case(b"file") {
                name = Some(file_name(value)?);
            } else if key.eq_ignore_ascii_case(b"seq") {
                sequence = parse_u64(value).unwrap_or(0);
            } else if key.eq_ignore_ascii_case(b"type") {
                kind = value.first().copied();
            }
        }
        let name = name.ok_or("it names no file")?;
        if sequence == 0 || i64::try_from(sequence).is_err() {
            return Err("the number of the file is none");
        }
        self.put(ManifestFile { name, sequence }, kind)
    }

    fn put(&mut self, file: ManifestFile, kind: Option<u8>) -> Result<(), &'static str> {
        match kind {
            Some(b'b') if self.base.is_some() => return Err("there are two base files"),
            Some(b'b') => self.base = Some(file),
            Some(b'i') => {
                let last = self.increments.last().map_or(0, |last| last.sequence);
                if file.sequence <= last {
                    return Err("the numbers of the files do not rise");
                }
                self.increments.push(file);
            }
            Some(b'h') => self.history.push(file),
            _ => return Err("the kind of the file is none of b, i and h"),
        }
        Ok(())
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |file: &ManifestFile, kind: char| {
            let name = quote_unless_plain(file.name.as_bytes());
            writeln!(f, "file {name} seq {} type {kind}", file.sequence)
        };
        self.base.iter().try_for_each(|file| line(file, 'b'))?;
        self.history.iter().try_for_each(|file| line(file, 'h'))?;
        self.increments.iter().try_for_each(|file| line(file, 'i'))
    }
}

/// Splits a text into lines, with or without an end of the last one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let is_empty = text.is_empty();
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .take_while(move |_| !is_empty)
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns a file name, if it does not lead out of the directory.
fn file_name(bytes: &[u8]) -> Result<String, &'static str> {
    let name = String::from_utf8(bytes.to_vec()).map_err(|_| "the name of the file is no text")?;
    let leads_away = name.contains(['/', '\\', '\0']) || name == "." || name == "..";
    if leads_away || name.is_empty() {
        return Err("the name of the file is a path");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, sequence: u64) -> ManifestFile {
        let name = name.to_owned();
        ManifestFile { name, sequence }
    }

    #[test]
    fn files_are_found_by_kind_and_written_back() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                    file appendonly.aof.1.base.rdb seq 1 type h\n\
                    file \"a file.4.incr.aof\" seq 4 type i\n\
                    file appendonly.aof.9.incr.aof seq 9 type i\n";
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        let expected = Manifest {
            base: Some(file("appendonly.aof.2.base.rdb", 2)),
            increments: vec![
                file("a file.4.incr.aof", 4),
                file("appendonly.aof.9.incr.aof", 9),
            ],
            history: vec![file("appendonly.aof.1.base.rdb", 1)],
        };
        assert_eq!(manifest, expected);
        assert_eq!(manifest.to_string(), text);
    }

    #[test]
    fn order_case_comments_and_unknown_keys_are_no_matter() {
        let text = "# by hand\r\nTYPE i startoffset 5 SEQ 7 File a\r\n# end";
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.increments, [file("a", 7)]);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_line() {
        for (text, line, what) in [
            ("", 0, "no file"),
            ("# only this\n", 0, "no file"),
            ("file a seq 1 type b\n\n", 2, "form"),
            ("file a seq 1\n", 1, "form"),
            ("file a seq 1 type b more\n", 1, "form"),
            ("file a seq x type b\n", 1, "number"),
            ("file a seq 0 type b\n", 1, "number"),
            ("file a seq 1 type x\n", 1, "kind"),
            ("file ../a seq 1 type b\n", 1, "path"),
            ("file .. seq 1 type b\n", 1, "path"),
            ("file \"a seq 1 type b\n", 1, "quotes"),
            ("name a seq 1 type b\n", 1, "names no file"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", 2, "two base"),
            ("file a seq 2 type i\nfile b seq 2 type i\n", 2, "rise"),
        ] {
            let fault = Manifest::parse(text.as_bytes()).unwrap_err();
            assert_eq!(fault.line, line, "{text:?}: {fault}");
            assert!(fault.what.contains(what), "{text:?}: {fault}");
        }
        let long = format!("file {} seq 1 type b\n", "a".repeat(LINE_BYTES_MAX));
        assert!(Manifest::parse(long.as_bytes()).is_err());
    }
}
