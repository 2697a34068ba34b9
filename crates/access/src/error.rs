//! Errors of rules.

use std::fmt;

/// The reason why a rule was refused. Its text uses the words that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// The text is not a rule.
    Syntax,
    /// There is no command and no category of this name.
    Unknown,
    /// A key pattern after `~*`, which already covers all keys.
    KeysAfterAll,
    /// A channel pattern after `&*`.
    ChannelsAfterAll,
    /// The user does not have the password that is to be removed.
    NoSuchPassword,
    /// The hash of a password is malformed.
    BadHash,
    /// The user was defined before.
    Duplicate,
    /// The rule restricts the first argument of a subcommand.
    ArgumentOfSubcommand,
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Syntax => "Syntax error",
            Self::Unknown => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                 not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Self::Duplicate => {
                "Duplicate user found. A user can only be defined once in config files"
            }
            Self::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        })
    }
}

impl std::error::Error for RuleError {}
