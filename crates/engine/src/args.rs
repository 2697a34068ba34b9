//! Cursor over the arguments of one request.

use base::number;
use protocol::Request;

use crate::error::CommandError;

/// The arguments that follow the command's name (and its subcommand's), taken one by one.
#[derive(Clone)]
pub struct Args<'a> {
    request: Request<'a>,
    next: usize,
}

impl<'a> Args<'a> {
    /// Returns a cursor over the arguments of `request` from index `next`.
    #[inline]
    #[must_use]
    pub fn new(request: Request<'a>, next: usize) -> Self {
        Self { request, next }
    }

    /// Returns the whole request, name included.
    #[inline]
    #[must_use]
    pub fn request(&self) -> Request<'a> {
        self.request
    }

    /// Returns the number of arguments that are left.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.request.len() - self.next
    }

    /// Takes the next argument.
    ///
    /// # Errors
    /// A syntax error if none is left.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], CommandError> {
        // An error that is constructed before it is needed must also be dropped, which costs a
        // call.
        let Some(argument) = self.next() else {
            return Err(CommandError::Syntax);
        };
        Ok(argument)
    }

    /// Returns all arguments that are left, without taking them.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> Rest<'a> {
        Rest {
            request: self.request,
            next: self.next,
        }
    }

    /// Returns the next argument without taking it, or `None` if none is left.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.request.arg(self.next)
    }

    /// Takes the next argument as a 64-bit integer.
    ///
    /// # Errors
    /// "value is not an integer or out of range", or a syntax error if none is left.
    #[inline]
    pub fn integer(&mut self) -> Result<i64, CommandError> {
        let Some(number) = number::parse_i64(self.bytes()?) else {
            return Err(CommandError::NotInteger);
        };
        Ok(number)
    }

    /// Takes the next argument as an integer from `least` to `most`.
    ///
    /// # Errors
    /// The errors of [`Args::integer`], and an error that names the range.
    pub fn bounded(&mut self, least: i64, most: i64) -> Result<i64, CommandError> {
        let number = self.integer()?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let text = format!("ERR value is out of range, value must between {least} and {most}");
        Err(CommandError::Text(text.into()))
    }

    /// Takes the next argument as a 32-bit integer (numbers of databases).
    ///
    /// # Errors
    /// The errors of [`Args::integer`], and an error that names the range.
    pub fn integer32(&mut self) -> Result<i32, CommandError> {
        i32::try_from(self.integer()?).map_err(|_| {
            CommandError::fixed(
                "ERR value is out of range, value must between -2147483648 and 2147483647",
            )
        })
    }

    /// Takes the next argument, if any, for comparison with option words.
    #[inline]
    pub fn option_word(&mut self) -> Option<OptionWord> {
        self.next().map(OptionWord::new)
    }

    /// Takes the next argument if it is `word`, ignoring case.
    #[inline]
    pub fn take_word(&mut self, word: &str) -> bool {
        let matches = self
            .peek()
            .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        self.next += usize::from(matches);
        matches
    }
}

/// Arguments that can be iterated over more than once.
#[derive(Clone, Copy)]
pub struct Rest<'a> {
    request: Request<'a>,
    next: usize,
}

impl<'a> Rest<'a> {
    /// Returns the arguments in pairs, such as fields and their values.
    pub fn pairs(mut self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        std::iter::from_fn(move || Some((self.next()?, self.next()?)))
    }
}

impl<'a> Iterator for Rest<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let arg = self.request.arg(self.next)?;
        self.next += 1;
        Some(arg)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.request.len() - self.next;
        (len, Some(len))
    }
}

impl ExactSizeIterator for Rest<'_> {}

/// Length of the longest option word of any command, in bytes.
const OPTION_BYTES_MAX: usize = 16;

/// An argument to be compared with the option words of a command, ignoring case.
#[derive(Clone, Copy, Debug)]
pub struct OptionWord {
    bytes: [u8; OPTION_BYTES_MAX],
    len: usize,
}

impl OptionWord {
    fn new(arg: &[u8]) -> Self {
        let mut bytes = [0; OPTION_BYTES_MAX];
        // A longer argument is not an option: it becomes the empty word, which matches nothing.
        let len = if arg.len() <= OPTION_BYTES_MAX {
            arg.len()
        } else {
            0
        };
        for (upper, byte) in bytes.iter_mut().zip(&arg[..len]) {
            *upper = byte.to_ascii_uppercase();
        }
        Self { bytes, len }
    }

    /// Returns the word in capitals. It is empty if the argument is too long to be an option.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
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
