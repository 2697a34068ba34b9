//! Errors of scripts.

use crate::host::Stop;

/// The reason why a script could not be compiled, or ended without a reply of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// The source is not a program. The text begins with the place, as `user_script:1: `.
    Compile(Vec<u8>),
    /// The script raised an error. The text is the whole error reply without the leading `-`: a
    /// code, the text, the name of the script and the line.
    Raised(Vec<u8>),
    /// The [`Host`](crate::Host) stopped it. The text is the whole error reply, as above.
    Stopped(Stop, Vec<u8>),
}

impl ScriptError {
    /// Returns the text, as described at each case.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Compile(text) | Self::Raised(text) | Self::Stopped(_, text) => text,
        }
    }
}
