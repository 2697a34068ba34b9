//! Append-only files of Redis: finding them, and reading their commands, a small part at a time.
//!
//! A file may begin as an RDB file. The last file may end within a request, because a server that
//! was stopped leaves it like that.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use rdb::aof_manifest::Manifest;

use super::writes::{HEAD_BYTES_MAX, Writes};

/// Suffix of a manifest's name.
const MANIFEST_SUFFIX: &str = ".manifest";
/// Default directory of such files below `dir`.
const DIRECTORY_NAME: &str = "appendonlydir";
/// Maximum length of a manifest, which has a few lines.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Digits of a length, with the bytes before and behind them.
const LINE_BYTES_MAX: u64 = 64;
/// Comment lines may be longer.
const COMMENT_BYTES_MAX: u64 = 64 << 10;

/// Returns the files that a path leads to, in order: a manifest, or a directory that contains one
/// or is above one. `None` for anything else.
pub(super) fn find(path: &Path) -> Result<Option<Vec<PathBuf>>, String> {
    let manifest = match path.is_dir() {
        true => match manifest_in(path)? {
            Some(manifest) => Some(manifest),
            None => manifest_in(&path.join(DIRECTORY_NAME))?,
        },
        false => {
            let is_one = path.to_string_lossy().ends_with(MANIFEST_SUFFIX);
            is_one.then(|| path.to_owned())
        }
    };
    let Some(manifest) = manifest else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let file = std::fs::File::open(&manifest).map_err(|error| error.to_string())?;
    let read = file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    let directory = manifest.parent().unwrap_or_else(|| Path::new(""));
    let read = Manifest::parse(&text);
    let read = read.map_err(|fault| format!("{}: {fault}", manifest.display()))?;
    let files = read.files().map(|file| directory.join(&file.name));
    let files: Vec<PathBuf> = files.collect();
    match files.is_empty() {
        true => Err(format!("{}: no file is in use", manifest.display())),
        false => Ok(Some(files)),
    }
}

/// Returns the only manifest in a directory.
fn manifest_in(directory: &Path) -> Result<Option<PathBuf>, String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(None);
    };
    let mut found = None;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_one = path.to_string_lossy().ends_with(MANIFEST_SUFFIX);
        if is_one && found.replace(path).is_some() {
            return Err("there is more than one manifest in it".to_owned());
        }
    }
    Ok(found)
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Behind a request.
    Whole,
    /// Within the request that begins at this offset.
    Short(u64),
}

/// Why reading a file ended early.
#[derive(Debug)]
pub(super) enum Flaw {
    Io(io::Error),
    /// The bytes at an offset are not a request.
    Damaged(u64),
}

/// Counts the requests from here to the end; `offset` is that of the next byte.
pub(super) fn read(
    mut input: impl BufRead,
    mut offset: u64,
    writes: &mut Writes,
) -> Result<End, Flaw> {
    loop {
        let begin = offset;
        let mut request = Request {
            input: &mut input,
            offset,
        };
        match request.read(writes) {
            Ok(true) => {
                writes.end();
                offset = request.offset;
            }
            Ok(false) => return Ok(End::Whole),
            Err(Flaw::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(End::Short(begin));
            }
            Err(flaw) => return Err(flaw),
        }
    }
}

/// A request that is being read.
struct Request<'i, I> {
    input: &'i mut I,
    offset: u64,
}

impl<I: BufRead> Request<'_, I> {
    /// Reads the request, or a comment line. Returns whether there was one.
    fn read(&mut self, writes: &mut Writes) -> Result<bool, Flaw> {
        writes.begin();
        let first = self.input.fill_buf().map_err(Flaw::Io)?.first().copied();
        match first {
            None => return Ok(false),
            Some(b'#') => {
                self.line(COMMENT_BYTES_MAX)?;
                return Ok(true);
            }
            Some(b'*') => {}
            Some(_) => return Err(Flaw::Damaged(self.offset)),
        }
        let parts = self.number(b'*')?;
        for _ in 0..parts {
            let len = self.number(b'$')?;
            let mut head = vec![
                0;
                usize::try_from(len)
                    .unwrap_or(usize::MAX)
                    .min(HEAD_BYTES_MAX)
            ];
            self.input.read_exact(&mut head).map_err(Flaw::Io)?;
            let rest = len - head.len() as u64;
            let passed = io::copy(&mut self.input.by_ref().take(rest), &mut io::sink());
            if passed.map_err(Flaw::Io)? < rest {
                return Err(Flaw::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            self.offset += len;
            let at = self.offset;
            let mut end = [0; 2];
            self.input.read_exact(&mut end).map_err(Flaw::Io)?;
            if end != *b"\r\n" {
                return Err(Flaw::Damaged(at));
            }
            self.offset += 2;
            writes.part(&head, len);
        }
        Ok(true)
    }

    /// Reads a line of a sign and a number.
    fn number(&mut self, sign: u8) -> Result<u64, Flaw> {
        let at = self.offset;
        let line = self.line(LINE_BYTES_MAX)?;
        let number = line.strip_prefix(&[sign]).and_then(base::number::parse_u64);
        number.ok_or(Flaw::Damaged(at))
    }

    /// Reads a line without its end.
    fn line(&mut self, bytes_max: u64) -> Result<Vec<u8>, Flaw> {
        let at = self.offset;
        let mut line = Vec::new();
        let mut limited = self.input.by_ref().take(bytes_max);
        limited.read_until(b'\n', &mut line).map_err(Flaw::Io)?;
        self.offset += line.len() as u64;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(text.to_vec()),
            None if (line.len() as u64) < bytes_max && line.last() != Some(&b'\n') => {
                Err(Flaw::Io(io::ErrorKind::UnexpectedEof.into()))
            }
            None => Err(Flaw::Damaged(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::Rules;
    use super::*;

    fn writes() -> Writes {
        Writes::new(Rules {
            top: 3,
            depth: 1,
            delimiter: b":".to_vec(),
        })
    }

    fn read_all(bytes: &[u8]) -> (Result<End, Flaw>, Writes) {
        let mut writes = writes();
        let read = read(bytes, 0, &mut writes);
        (read, writes)
    }

    #[test]
    fn requests_are_read_to_where_they_are_whole() {
        let long = "x".repeat(5_000);
        let whole = format!(
            "#TS:1\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n*3\r\n$3\r\nSET\r\n$3\r\na:1\r\n$5000\r\n{long}\r\n"
        );
        let (end, writes) = read_all(whole.as_bytes());
        assert_eq!(end.unwrap(), End::Whole);
        assert_eq!((writes.total.writes, writes.total.bytes), (1, 5_006));
        assert_eq!(writes.most_written()[0].0, (2, &b"a:1"[..]));
        let begin = whole.find("*3").unwrap() as u64;
        for cut in [1, 3, 100, 5_003, 5_020] {
            let (end, writes) = read_all(&whole.as_bytes()[..whole.len() - cut]);
            assert_eq!(end.unwrap(), End::Short(begin), "{cut}");
            assert_eq!(writes.total.writes, 0);
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_offset() {
        for (bytes, at) in [
            (&b"*1\r\n$4\r\nPINGxx"[..], 12),
            (b"nonsense\r\n", 0),
            (b"nonsense", 0),
            (b"*1\r\n:4\r\n", 4),
            (b"*1\r\n$-1\r\n", 4),
            (b"*1\n", 0),
        ] {
            let (end, _) = read_all(bytes);
            assert!(
                matches!(end, Err(Flaw::Damaged(own)) if own == at),
                "{end:?} {at}"
            );
        }
    }
}
