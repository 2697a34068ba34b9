//! Scripts and functions: EVAL, FCALL and their variants, SCRIPT, FUNCTION.
//!
//! [`engine::scripts`] describes how they run; here are the commands.

mod evaluate;
mod function;
mod script;

use engine::args::Args;
use engine::error::CommandError;
use engine::spec::CommandSpec;
use protocol::Request;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[evaluate::COMMANDS, script::COMMANDS, function::COMMANDS];

/// Keys and arguments of a call, after `numkeys`.
struct Given<'r> {
    keys: Vec<&'r [u8]>,
    args: Vec<&'r [u8]>,
    request: Request<'r>,
}

impl<'r> Given<'r> {
    /// # Errors
    /// If the number of keys is invalid, negative, or larger than the number of arguments.
    fn parse(args: &mut Args<'r>) -> Result<Self, CommandError> {
        let count = args.integer()?;
        let given = args.remaining();
        let too_many = i64::try_from(given).is_ok_and(|given| count > given);
        if too_many {
            return Err(CommandError::fixed(
                "ERR Number of keys can't be greater than number of args",
            ));
        }
        let count = usize::try_from(count)
            .map_err(|_| CommandError::fixed("ERR Number of keys can't be negative"))?;
        Ok(Self {
            keys: args.by_ref().take(count).collect(),
            args: args.by_ref().collect(),
            request: args.request(),
        })
    }
}

/// Parses SYNC, ASYNC or nothing; both flush at once here.
///
/// # Errors
/// `complaint` for anything else.
fn take_mode(args: &mut Args<'_>, complaint: &'static str) -> Result<(), CommandError> {
    if args.remaining() > 1 {
        return Err(CommandError::fixed(complaint));
    }
    if args.remaining() == 0 || args.take_word("SYNC") || args.take_word("ASYNC") {
        return Ok(());
    }
    Err(CommandError::fixed(complaint))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;
