//! Errors of commands and their exact reply texts.

use std::borrow::Cow;

use access::Denial;
use protocol::Request;
use store::StoreError;
use structures::Full;

use crate::hash_slots::Elsewhere;

/// What a handler gives back: the reply is written, or there is an error to write.
pub type CommandResult = Result<(), CommandError>;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Options that make no sense together, or a missing argument.
    Syntax,
    /// An argument or value is no 64-bit integer.
    NotInteger,
    /// An argument or value is no finite floating-point number.
    NotFloat,
    /// The key holds another kind of value.
    WrongType,
    /// The key does not exist.
    NoSuchKey,
    /// Wrong number of arguments for the named command (lower case, `|` before a subcommand).
    WrongArity(Cow<'static, str>),
    /// Memory is full.
    OutOfMemory,
    /// It takes longer than a worker may be away from its other clients; nothing was done. Never
    /// sent: whoever can run it aside does ([`crate::Next::Aside`]).
    Aside,
    /// Somebody who takes long has what it needs; nothing was done. Never sent: it is run again when
    /// that may be over ([`crate::Next::Busy`]), or refused as by who is late.
    Held,
    /// There is nothing yet, and the client waits; nothing was done. Never sent
    /// ([`crate::Next::Blocks`]).
    Blocks,
    /// Its keys are served elsewhere, or nowhere.
    Elsewhere(Box<Elsewhere>),
    /// The client's user may not do that.
    Denied(Box<Denied>),
    /// Any other text, error code included.
    Text(Cow<'static, str>),
    /// A text that repeats what the client sent, byte for byte.
    Bytes(Vec<u8>),
    /// What a command inside of a script answered, handed on by the script: an error that was counted
    /// where it came up.
    HandedOn(Vec<u8>),
}

/// The answer to who wants a member of a set or of a sorted set to expire. A stream of KeyDB may want that, and goes on.
pub const NO_MEMBER_DEADLINES: &str =
    "ERR members of sets and sorted sets have no deadlines here, only fields of hashes";

/// What a client hears whose value lies out of memory and cannot be read.
const TIER_FAILED: &str = "TIERFAIL value cannot be read";

impl CommandError {
    /// An error with a fixed text, code included.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// The text of the reply, code included.
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

/// That a user may not run a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What is in the way.
    pub denial: Denial,
    /// What the client reads.
    pub text: Vec<u8>,
}

/// How much of a word, or of all arguments together, an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// The part of an argument that an error repeats: up to `most` bytes, and none from a zero byte on.
pub fn shown(arg: &[u8], most: usize) -> &[u8] {
    let end = arg.iter().position(|byte| *byte == 0);
    &arg[..end.unwrap_or(arg.len()).min(most)]
}

/// The answer to a command that is not in the table.
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

/// What a container answers when its subcommand is not known.
#[cold]
pub(crate) fn unknown_subcommand(request: Request<'_>) -> CommandError {
    about_subcommand(request, "ERR unknown subcommand '")
}

/// What a container does when its subcommand takes other arguments.
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
