//! Finds where commands end in the stream of a primary, so that whole commands are applied and
//! counted.
//!
//! Only the outline of commands is read here; the caller that applies them decodes them. A run of
//! commands is returned as one [`Piece`], which ends outside transactions if possible.
//!
//! Invariant: pieces follow each other without a gap. Every piece that is not open ends where the
//! primary's data is as it was between two commands or transactions.

use base::number::parse_i64;

/// A piece ends with the first command that reaches this length.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of arguments of a command.
const ARGUMENTS_MAX: i64 = 1 << 20;
/// Maximum bytes of an argument: the decoders accept commands below 4 GiB.
const ARGUMENT_BYTES_MAX: i64 = (4 << 30) - 1;
/// Maximum bytes of a line with a count or length.
const LINE_BYTES_MAX: usize = 32;

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Whole commands.
    Commands {
        /// Length of the piece.
        bytes: usize,
        /// Whether a transaction began in this piece or before, and has not ended.
        is_open: bool,
    },
    /// The primary requests an acknowledgement.
    GetAck {
        /// Length of the piece.
        bytes: usize,
    },
    /// Another REPLCONF, or empty lines: their bytes count, but they have no effect.
    Nothing {
        /// Length of the piece.
        bytes: usize,
    },
}

/// The bytes are not a stream of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceFlaw(pub &'static str);

impl std::fmt::Display for PieceFlaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PieceFlaw {}

/// Finds pieces.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    is_open: bool,
    /// Progress of the scan of the first command, which may be long and come in many parts.
    front: Progress,
}

/// Progress of the scan of a command.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of scanned bytes.
    at: usize,
    /// Number of arguments that follow, or `None` if it is not known yet.
    left: Option<i64>,
}

/// Kind of a command, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Begin,
    End,
    GetAck,
    Replconf,
    Empty,
}

impl Commands {
    /// Whether a transaction began in the returned pieces, and has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the next piece of the stream, with which `bytes` begin, or `None` if no command is
    /// whole yet. The bytes of the next call begin after the piece.
    ///
    /// # Errors
    /// [`PieceFlaw`]: the stream is unusable from here on.
    pub fn next_piece(&mut self, bytes: &[u8]) -> Result<Option<Piece>, PieceFlaw> {
        let mut progress = self.front;
        let (mut at, mut end, mut is_open) = (0, 0, self.is_open);
        while at < PIECE_BYTES {
            let rest = &bytes[at..];
            match pass(rest, &mut progress) {
                Ok(true) => {}
                Ok(false) => {
                    if at == 0 {
                        self.front = progress;
                    }
                    break;
                }
                Err(flaw) if at == 0 => return Err(flaw),
                Err(_) => break,
            }
            let len = progress.at;
            progress = Progress::default();
            match kind_of(&rest[..len]) {
                Kind::Begin => is_open = true,
                Kind::End => is_open = false,
                kind @ (Kind::GetAck | Kind::Replconf | Kind::Empty) if !is_open => {
                    if at > 0 {
                        break;
                    }
                    self.front = Progress::default();
                    return Ok(Some(alone(kind, rest, len)));
                }
                _ => {}
            }
            at += len;
            if !is_open {
                end = at;
            }
        }
        if at == 0 {
            return Ok(None);
        }
        self.front = Progress::default();
        if end == 0 {
            end = at;
        } else {
            is_open = false;
        }
        self.is_open = is_open;
        Ok(Some(Piece::Commands {
            bytes: end,
            is_open,
        }))
    }
}

/// Returns the piece of a command that counts but is not applied.
fn alone(kind: Kind, bytes: &[u8], len: usize) -> Piece {
    match kind {
        Kind::GetAck => Piece::GetAck { bytes: len },
        Kind::Empty => {
            let is_newline = |byte: &&u8| **byte == b'\n';
            let more = bytes[len..].iter().take_while(is_newline).count();
            Piece::Nothing { bytes: len + more }
        }
        _ => Piece::Nothing { bytes: len },
    }
}

/// Scans the available bytes of a command. Returns whether it is whole; its end is then in
/// `progress`.
fn pass(bytes: &[u8], progress: &mut Progress) -> Result<bool, PieceFlaw> {
    let mut left = match progress.left {
        Some(left) => left,
        None => match bytes.first() {
            None => return Ok(false),
            Some(b'\n') => {
                progress.at = 1;
                return Ok(true);
            }
            Some(b'\r') => {
                progress.at = 2;
                return match bytes.get(1) {
                    None => {
                        progress.at = 0;
                        Ok(false)
                    }
                    Some(b'\n') => Ok(true),
                    Some(_) => Err(PieceFlaw("a carriage return without a newline")),
                };
            }
            Some(b'*') => {
                let Some((count, len)) = number_line(&bytes[1..])? else {
                    return Ok(false);
                };
                if count > ARGUMENTS_MAX {
                    return Err(PieceFlaw("a command has too many arguments"));
                }
                progress.at = 1 + len;
                progress.left = Some(count);
                count
            }
            Some(_) => return Err(PieceFlaw("an inline command from a primary")),
        },
    };
    while left > 0 {
        let rest = bytes.get(progress.at..).unwrap_or_default();
        match rest.first() {
            None => return Ok(false),
            Some(b'$') => {}
            Some(_) => return Err(PieceFlaw("an argument without its length")),
        }
        let Some((len, head)) = number_line(&rest[1..])? else {
            return Ok(false);
        };
        let len = match usize::try_from(len) {
            Ok(bytes) if len <= ARGUMENT_BYTES_MAX => bytes,
            _ => return Err(PieceFlaw("an argument has an impossible length")),
        };
        let end = 1 + head + len;
        match rest.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(PieceFlaw("an argument is longer than it says")),
        }
        progress.at += end + 2;
        left -= 1;
        progress.left = Some(left);
    }
    Ok(true)
}

/// Returns the number on a line, and the length of the line.
fn number_line(bytes: &[u8]) -> Result<Option<(i64, usize)>, PieceFlaw> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(PieceFlaw("a number without an end")),
        };
    };
    let digits = window[..end].strip_suffix(b"\r").unwrap_or_default();
    match parse_i64(digits) {
        Some(number) => Ok(Some((number, end + 1))),
        None => Err(PieceFlaw("a number that is none")),
    }
}

fn kind_of(command: &[u8]) -> Kind {
    let Some(name) = argument(command, 0) else {
        return Kind::Empty;
    };
    if name.eq_ignore_ascii_case(b"MULTI") {
        return Kind::Begin;
    }
    if name.eq_ignore_ascii_case(b"EXEC") || name.eq_ignore_ascii_case(b"DISCARD") {
        return Kind::End;
    }
    if !name.eq_ignore_ascii_case(b"REPLCONF") {
        return Kind::Plain;
    }
    match argument(command, 1) {
        Some(word) if word.eq_ignore_ascii_case(b"GETACK") => Kind::GetAck,
        _ => Kind::Replconf,
    }
}

/// Returns an argument of a whole command, or `None` if it has fewer arguments.
fn argument(command: &[u8], index: usize) -> Option<&[u8]> {
    let (count, len) = number_line(command.strip_prefix(b"*")?).ok()??;
    if count <= i64::try_from(index).ok()? {
        return None;
    }
    let mut rest = command.get(1 + len..)?;
    for _ in 0..index {
        let (len, head) = number_line(rest.strip_prefix(b"$")?).ok()??;
        rest = rest.get(1 + head + usize::try_from(len).ok()? + 2..)?;
    }
    let (len, head) = number_line(rest.strip_prefix(b"$")?).ok()??;
    rest.get(1 + head..)?.get(..usize::try_from(len).ok()?)
}
