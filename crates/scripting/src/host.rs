//! What a script asks of the server.

use crate::value::Value;

/// The server, as one run of a script sees it.
pub trait Host {
    /// Runs a command for `redis.call` and `redis.pcall`: its name, then its arguments. Errors are
    /// replies too.
    fn call(&mut self, arguments: &[&[u8]]) -> Reply<'_>;

    /// Writes a line of the script into the server's log.
    fn log(&mut self, level: Level, text: &[u8]);

    /// Whether the script's user may run the command, for `redis.acl_check_cmd`.
    ///
    /// # Errors
    /// [`Refused`] when there is no such command, or the number of arguments is wrong.
    fn acl_allows(&mut self, arguments: &[&[u8]]) -> Result<bool, Refused>;

    /// The script wants the replies of its commands in RESP `version`, 2 or 3. Each run begins with 2.
    fn set_resp(&mut self, version: u8);

    /// Asked every so many steps and while library functions work for long: whether to stop.
    fn interrupted(&mut self) -> Option<Stop>;
}

/// What a command gave.
#[derive(Debug)]
pub enum Reply<'a> {
    /// The reply as a tree.
    Value(Value),
    /// The reply as it would go to a client that speaks the version set last: one frame. Read in
    /// place, so this is the cheap way.
    Encoded(&'a [u8]),
    /// The script ends here, and cannot go on.
    Stop(Stop),
}

impl From<Value> for Reply<'_> {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// A script has to end before its end. Why is the host's knowledge; `text` is what the script's
/// caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The error's text, without the name of the script.
    pub text: &'static str,
}

/// The command given to [`Host::acl_allows`] is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error's text, its code first.
    pub text: &'static str,
}

/// How much a line of the log matters: `redis.LOG_DEBUG` to `redis.LOG_WARNING`.
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
