//! Cursor over the arguments of one request.

use base::number;
use protocol::Request;

use crate::error::CommandError;

/// The arguments after the command's name (and its subcommand's), taken one after another.
pub struct Args<'a> {
    request: Request<'a>,
    next: usize,
}

impl<'a> Args<'a> {
    /// The arguments of `request` from index `next` on.
    #[inline]
    #[must_use]
    pub fn new(request: Request<'a>, next: usize) -> Self {
        Self { request, next }
    }

    /// The whole request, name included.
    #[inline]
    #[must_use]
    pub fn request(&self) -> Request<'a> {
        self.request
    }

    /// How many arguments are left.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.request.len() - self.next
    }

    /// The next argument.
    ///
    /// # Errors
    /// A syntax error when none is left.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], CommandError> {
        self.next().ok_or(CommandError::Syntax)
    }

    /// The next argument without taking it.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.request.arg(self.next)
    }

    /// The next argument as a 64-bit integer.
    ///
    /// # Errors
    /// "value is not an integer or out of range", or a syntax error when none is left.
    #[inline]
    pub fn integer(&mut self) -> Result<i64, CommandError> {
        number::parse_i64(self.bytes()?).ok_or(CommandError::NotInteger)
    }

    /// Takes the next argument if it is `word` (in any case).
    #[inline]
    pub fn take_word(&mut self, word: &str) -> bool {
        let matches = self
            .peek()
            .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        self.next += usize::from(matches);
        matches
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let arg = self.request.arg(self.next)?;
        self.next += 1;
        Some(arg)
    }
}
