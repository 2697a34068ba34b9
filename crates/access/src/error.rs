//! Why a rule was refused.

use std::fmt;

/// Why a rule was refused; shown with the words that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It is no rule.
    Syntax,
    /// No command and no category is called so.
    Unknown,
    /// A key pattern beside `~*`, which holds for all keys already.
    KeysAfterAll,
    /// A channel pattern beside `&*`.
    ChannelsAfterAll,
    /// The password to be removed is not there.
    NoSuchPassword,
    /// A hash of a password is not one.
    BadHash,
    /// The user was defined before.
    Duplicate,
    /// A first argument of a subcommand.
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
