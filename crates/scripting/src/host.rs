//! The interface through which a script uses the server.

use crate::value::Value;

/// The server, as one run of a script sees it.
pub trait Host {
    /// Runs a command for `redis.call` and `redis.pcall`. The arguments are its name, then its
    /// arguments. Errors are replies too.
    fn call(&mut self, arguments: &[&[u8]]) -> Reply<'_>;

    /// Writes a line of the script to the server's log.
    fn log(&mut self, level: Level, text: &[u8]);

    /// Returns whether the script's user may run the command, for `redis.acl_check_cmd`.
    ///
    /// # Errors
    /// [`Refused`] if there is no such command, or the number of arguments is wrong.
    fn acl_allows(&mut self, arguments: &[&[u8]]) -> Result<bool, Refused>;

    /// Sets the RESP version, 2 or 3, of the replies of the script's commands. Each run begins with
    /// 2.
    fn set_resp(&mut self, version: u8);

    /// Returns a value if the script has to stop. Called at intervals of steps, and during long
    /// library functions.
    fn interrupted(&mut self) -> Option<Stop>;
}

/// The result of a command.
#[derive(Debug)]
pub enum Reply<'a> {
    /// The reply as a tree.
    Value(Value),
    /// The reply as a client of the version set last would receive it: one frame. It is read in
    /// place, so this is the cheap form.
    Encoded(&'a [u8]),
    /// The script ends here and cannot continue.
    Stop(Stop),
}

impl From<Value> for Reply<'_> {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// A request that the script ends early. The reason is known to the [`Host`]; `text` is sent to the
/// script's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The error's text, without the name of the script.
    pub text: &'static str,
}

/// The error for arguments of [`Host::acl_allows`] that are not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error's text, its code first.
    pub text: &'static str,
}

/// The severity of a log line: `redis.LOG_DEBUG` to `redis.LOG_WARNING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// 0
    Debug,
    /// 1
    Verbose,
    /// 2
    Notice,
    /// 3
    Warning,
}
