//! Errors of commands and their exact reply texts.

use std::borrow::Cow;

use access::Denial;
use protocol::Request;
use store::StoreError;
use structures::Full;

use crate::hash_slots::Elsewhere;

/// The result of a handler: either it has written the reply, or it returns an error to write.
pub type CommandResult = Result<(), CommandError>;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Contradictory options, or a missing argument.
    Syntax,
    /// An argument or value is not a 64-bit integer.
    NotInteger,
    /// An argument or value is not a finite floating-point number.
    NotFloat,
    /// The key holds a value of another type.
    WrongType,
    /// The key does not exist.
    NoSuchKey,
    /// Wrong number of arguments for the named command (lower case, `|` before a subcommand).
    WrongArity(Cow<'static, str>),
    /// Memory is full.
    OutOfMemory,
    /// The command takes longer than a worker may neglect its other clients; nothing was done.
    /// Never sent: a worker that can offload the request does so ([`crate::Next::Aside`]).
    Aside,
    /// A long request holds what the command needs; nothing was done. Never sent: the request runs
    /// again when the other one may be done ([`crate::Next::Busy`]), or is refused if that one is a
    /// script over its time limit.
    Held,
    /// There is no data yet, and the client waits; nothing was done. Never sent
    /// ([`crate::Next::Blocks`]).
    Blocks,
    /// The keys are served by another node, or by none.
    Elsewhere(Box<Elsewhere>),
    /// The client's user is not permitted to run the command.
    Denied(Box<Denied>),
    /// Any other text, error code included.
    Text(Cow<'static, str>),
    /// A text that repeats what the client sent, byte for byte.
    Bytes(Vec<u8>),
    /// The error of a command inside a script, which the script returned. It was counted where it
    /// occurred.
    HandedOn(Vec<u8>),
}

/// The error for a deadline on a member of a set or of a sorted set. KeyDB streams may contain such
/// a command; they continue.
pub const NO_MEMBER_DEADLINES: &str =
    "ERR members of sets and sorted sets have no deadlines here, only fields of hashes";

/// The error for a client whose value is out of memory and cannot be read.
const TIER_FAILED: &str = "TIERFAIL value cannot be read";

impl CommandError {
    /// Returns an error with a fixed text, code included.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// Returns the text of the reply, code included.
    #[must_use]
    pub fn text(&self) -> Cow<'_, [u8]> {
        let text: Cow<'_, str> = match self {
            Self::Bytes(bytes) | Self::HandedOn(bytes) => return Cow::Borrowed(bytes),
            Self::Denied(denied) => return Cow::Borrowed(&denied.text),
            Self::Syntax => "ERR syntax error".into(),
            Self::NotInteger => "ERR value is not an integer or out of range".into(),
            Self::NotFloat => "ERR value is not a valid float".into(),
            Self::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value".into()
            }
            Self::NoSuchKey => "ERR no such key".into(),
            Self::WrongArity(name) => {
                format!("ERR wrong number of arguments for '{name}' command").into()
            }
            Self::Aside => "ERR the command takes too long here".into(),
            Self::Held => "ERR the keys are held for long".into(),
            Self::Blocks => "ERR the command waits".into(),
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.".into(),
            Self::Elsewhere(elsewhere) => elsewhere.text(),
            Self::Text(text) => Cow::Borrowed(text),
        };
        match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

impl From<Elsewhere> for CommandError {
    fn from(elsewhere: Elsewhere) -> Self {
        Self::Elsewhere(Box::new(elsewhere))
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OutOfMemory => Self::OutOfMemory,
            StoreError::WrongKind => Self::WrongType,
            StoreError::Unreadable => Self::fixed(TIER_FAILED),
            StoreError::TooLarge => {
                Self::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
            }
        }
    }
}

impl From<Full> for CommandError {
    fn from(_: Full) -> Self {
        Self::fixed("ERR the collection has as many elements as one can have")
    }
}

/// A request that the user is not permitted to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The rule that denies it.
    pub denial: Denial,
    /// The text of the reply.
    pub text: Vec<u8>,
}

/// Maximum number of bytes of a word, or of all arguments together, that an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// Returns the part of an argument that an error repeats: at most `most` bytes, up to the first
/// zero byte.
pub fn shown(arg: &[u8], most: usize) -> &[u8] {
    let end = arg.iter().position(|byte| *byte == 0);
    &arg[..end.unwrap_or(arg.len()).min(most)]
}

/// Returns the error for a command that is not in the table.
#[cold]
pub(crate) fn unknown_command(request: Request<'_>) -> CommandError {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shown(request.name(), SHOWN_BYTES_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in request.iter().skip(1) {
        let room = SHOWN_BYTES_MAX.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(shown(arg, room));
        text.extend_from_slice(b"' ");
    }
    CommandError::Bytes(text)
}

/// Returns the error for an unknown subcommand of a container.
#[cold]
pub(crate) fn unknown_subcommand(request: Request<'_>) -> CommandError {
    about_subcommand(request, "ERR unknown subcommand '")
}

/// Returns the error for a subcommand with wrong arguments.
#[cold]
pub fn subcommand_syntax(request: Request<'_>) -> CommandError {
    about_subcommand(
        request,
        "ERR unknown subcommand or wrong number of arguments for '",
    )
}

fn about_subcommand(request: Request<'_>, complaint: &str) -> CommandError {
    let word = request.arg(1).unwrap_or_default();
    let mut text = complaint.as_bytes().to_vec();
    text.extend_from_slice(shown(word, SHOWN_BYTES_MAX));
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(&request.name().to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    CommandError::Bytes(text)
}
