//! What a primary sends its replicas: the RDB file of a full sync, kept or skipped, and the
//! requests that follow it.
//!
//! The file is sent as `$LENGTH` and so many bytes, or as `$EOF:MARK` and bytes until the mark of
//! 40 bytes. Progress is reported on standard error, in the words of `redis-cli`, because the file
//! may go to standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use protocol::Value;

use super::options::Options;
use super::out::written;
use super::print::{Form, Printer};
use crate::endpoint::Session;
use crate::error::BenchError;

const PIECE_BYTES: usize = 64 << 10;
const MARK_BYTES: usize = 40;
/// Maximum length of the line in front of the file.
const HEAD_BYTES_MAX: usize = 1 << 10;

/// The requested file and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dump {
    /// `-` is standard output.
    pub(super) path: PathBuf,
    /// Whether only functions are requested.
    pub(super) has_functions_alone: bool,
}

/// How the end of the file is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extent {
    Bytes(u64),
    Mark([u8; MARK_BYTES]),
}

/// Prints to standard error. Without it the message is lost.
fn tell(text: &str) {
    let _told = writeln!(io::stderr(), "{text}");
}

/// Fetches the file of a full sync.
pub(super) fn dump(options: &Options, dump: &Dump, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    session.set_patience(None)?;
    // A server that knows none of these still sends a file; without the filter it would send all
    // keys.
    replconf(&mut session, &["capa", "eof"], false)?;
    replconf(&mut session, &["rdb-only", "1"], false)?;
    if dump.has_functions_alone {
        replconf(&mut session, &["rdb-filter-only", "functions"], true)?;
    }
    let extent = begin(&mut session)?;
    let name = dump.path.display();
    tell(&match &extent {
        Extent::Bytes(bytes) => format!("SYNC sent to master, writing {bytes} bytes to '{name}'"),
        Extent::Mark(_) => format!(
            "SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{name}'"
        ),
    });
    let bytes = if dump.path.as_os_str() == "-" {
        let bytes = transfer(&mut session, &extent, &mut |piece| {
            written(out.write_all(piece))
        })?;
        written(out.flush())?;
        bytes
    } else {
        keep(&mut session, &extent, &dump.path)?
    };
    tell(&match extent {
        Extent::Bytes(_) => "Transfer finished with success.".to_owned(),
        Extent::Mark(_) => format!("Transfer finished with success after {bytes} bytes"),
    });
    Ok(())
}

/// Shows the requests that a replica gets, as CSV, until the connection ends.
pub(super) fn follow(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    session.set_patience(None)?;
    replconf(&mut session, &["capa", "eof"], false)?;
    // No data is needed; a server that does not know the filter sends it.
    replconf(&mut session, &["rdb-filter-only", ""], false)?;
    let extent = begin(&mut session)?;
    tell(&match &extent {
        Extent::Bytes(bytes) => {
            format!("SYNC with master, discarding {bytes} bytes of bulk transfer...")
        }
        Extent::Mark(_) => {
            "SYNC with master, discarding bytes of bulk transfer until EOF marker...".to_owned()
        }
    });
    let bytes = transfer(&mut session, &extent, &mut |_| Ok(()))?;
    tell(&match extent {
        Extent::Bytes(_) => "SYNC done. Logging commands from master.".to_owned(),
        Extent::Mark(_) => format!("SYNC done after {bytes} bytes. Logging commands from master."),
    });
    // A primary sends nothing until the replica has acknowledged the file. The acknowledgement gets
    // no reply.
    tell("sending REPLCONF ACK 0");
    let mut request = Vec::new();
    protocol::encode_request(&mut request, &[&b"REPLCONF"[..], b"ACK", b"0"]);
    session.send(&request)?;
    let printer = Printer::new(Form::Csv);
    loop {
        let request = session.reply()?;
        let text = printer.show(&request, false);
        written(out.write_all(&text).and_then(|()| out.flush()))?;
    }
}

/// Sends an option of this replica. With `is_needed` the server has to accept it.
fn replconf(session: &mut Session, words: &[&str; 2], is_needed: bool) -> Result<(), BenchError> {
    tell(&format!("sending REPLCONF {} {}", words[0], words[1]));
    match session.ask(&["REPLCONF", words[0], words[1]])? {
        Value::Error(text) if is_needed => Err(BenchError::Refused {
            request: format!("REPLCONF {}", words[0]),
            reply: String::from_utf8_lossy(&text).into_owned(),
        }),
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text);
            tell(&format!("REPLCONF {} error: {text}", words[0]));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Requests the file. Returns how its end is marked.
fn begin(session: &mut Session) -> Result<Extent, BenchError> {
    session.send(b"SYNC\r\n")?;
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        if session.read_bytes(&mut byte)? == 0 {
            return Err(ended("before the file began"));
        }
        match byte[0] {
            // While the file is being made, line breaks keep the connection alive.
            b'\n' if line.is_empty() => {}
            b'\n' => break,
            b'\r' => {}
            other if line.len() < HEAD_BYTES_MAX => line.push(other),
            _ => return Err(ended("with a line that has no end")),
        }
    }
    extent(&line).ok_or_else(|| BenchError::Refused {
        request: "SYNC".to_owned(),
        reply: String::from_utf8_lossy(&line).into_owned(),
    })
}

/// Parses the line in front of the file.
fn extent(line: &[u8]) -> Option<Extent> {
    let text = line.strip_prefix(b"$")?;
    if let Some(mark) = text.strip_prefix(b"EOF:") {
        return mark.try_into().ok().map(Extent::Mark);
    }
    let bytes = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(Extent::Bytes(bytes))
}

fn ended(when: &str) -> BenchError {
    BenchError::Refused {
        request: "SYNC".to_owned(),
        reply: format!("the connection ended {when}"),
    }
}

/// Reads the file piece by piece. Returns its length.
fn transfer(
    session: &mut Session,
    extent: &Extent,
    take: &mut dyn FnMut(&[u8]) -> Result<(), BenchError>,
) -> Result<u64, BenchError> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut taken = 0_u64;
    // With a mark, bytes that may be its beginning are held back.
    let mut held: Vec<u8> = Vec::new();
    loop {
        let wanted = match extent {
            Extent::Bytes(bytes) => {
                let left = bytes - taken;
                usize::try_from(left)
                    .unwrap_or(PIECE_BYTES)
                    .min(PIECE_BYTES)
            }
            Extent::Mark(_) => PIECE_BYTES,
        };
        if wanted == 0 {
            return Ok(taken);
        }
        let count = session.read_bytes(&mut piece[..wanted])?;
        if count == 0 {
            return Err(ended("within the file"));
        }
        held.extend_from_slice(&piece[..count]);
        let (whole, is_last) = match extent {
            Extent::Bytes(_) => (held.len(), false),
            Extent::Mark(mark) => (held.len().saturating_sub(MARK_BYTES), held.ends_with(mark)),
        };
        take(&held[..whole])?;
        taken += whole as u64;
        held.drain(..whole);
        if is_last {
            return Ok(taken);
        }
    }
}

/// Writes the file to this machine. It gets its name when it is complete.
fn keep(session: &mut Session, extent: &Extent, path: &Path) -> Result<u64, BenchError> {
    let failed = |error: io::Error| BenchError::File(path.to_owned(), error.to_string());
    // A pipe or a device is written to directly.
    let is_other = path.metadata().is_ok_and(|known| !known.is_file());
    let part = match is_other {
        true => path.to_owned(),
        false => {
            let mut name = path.as_os_str().to_owned();
            name.push(".part");
            PathBuf::from(name)
        }
    };
    let mut file = match is_other {
        true => OpenOptions::new().write(true).open(&part),
        false => File::create(&part),
    }
    .map_err(failed)?;
    let transferred = transfer(session, extent, &mut |piece| {
        file.write_all(piece).map_err(failed)
    });
    if is_other {
        return transferred;
    }
    let kept = transferred.and_then(|bytes| {
        file.sync_all().map_err(failed)?;
        std::fs::rename(&part, path).map_err(failed)?;
        Ok(bytes)
    });
    if kept.is_err() {
        // An incomplete file is useless.
        let _removed = std::fs::remove_file(&part);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::endpoint::{Address, Endpoint};

    #[test]
    fn the_line_in_front_says_how_the_file_ends() {
        assert_eq!(extent(b"$17"), Some(Extent::Bytes(17)));
        let mark = [b'm'; MARK_BYTES];
        let line = [&b"$EOF:"[..], &mark].concat();
        assert_eq!(extent(&line), Some(Extent::Mark(mark)));
        for line in [&b"$EOF:short"[..], b"$-1", b"$x", b"-ERR no", b""] {
            assert_eq!(extent(line), None, "{}", line.escape_ascii());
        }
    }

    /// Receives a file that a server sends in pieces of `step` bytes. Returns the file, its length,
    /// and what followed.
    fn taken(extent: &Extent, sent: &[u8], step: usize) -> (Vec<u8>, u64, Vec<u8>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent = sent.to_vec();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in sent.chunks(step) {
                stream.write_all(piece).unwrap();
            }
        });
        let address = Address::Tcp("127.0.0.1".to_owned(), port);
        let mut session = Endpoint::new("server", address).connect().unwrap();
        let mut file = Vec::new();
        let bytes = transfer(&mut session, extent, &mut |piece| {
            file.extend_from_slice(piece);
            Ok(())
        });
        let bytes = bytes.unwrap();
        let mut rest = Vec::new();
        let mut piece = [0; 16];
        while let count @ 1.. = session.read_bytes(&mut piece).unwrap() {
            rest.extend_from_slice(&piece[..count]);
        }
        server.join().unwrap();
        (file, bytes, rest)
    }

    #[test]
    fn a_file_ends_at_its_mark_or_its_length_whatever_the_pieces() {
        let mark = *b"0123456789abcdef0123456789abcdef01234567";
        // The file contains the beginning of the mark.
        let file = [&b"REDIS0010"[..], &mark[..39], b"x"].concat();
        let marked = [&file[..], &mark].concat();
        let followed = [&file[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        for step in [1, 7, 40, 1000] {
            let (taken_file, bytes, _) = taken(&Extent::Mark(mark), &marked, step);
            assert_eq!(taken_file, file, "{step}");
            assert_eq!(bytes, file.len() as u64);
            let length = file.len() as u64;
            let (taken_file, bytes, rest) = taken(&Extent::Bytes(length), &followed, step);
            assert_eq!((taken_file, bytes), (file.clone(), length), "{step}");
            assert_eq!(rest, b"*1\r\n$4\r\nPING\r\n");
        }
    }
}
