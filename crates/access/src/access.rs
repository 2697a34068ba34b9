//! Users with what is kept about their attempts: one owner of who may do what.

use std::sync::Arc;

use crate::denials::Denials;
use crate::throttle::Throttle;
use crate::user::User;
use crate::users::Users;

/// Who may do what on a server.
#[derive(Debug, Default)]
pub struct Access {
    /// Users and their rules.
    pub users: Users,
    /// What they were not allowed lately.
    pub denials: Denials,
    /// Who failed to log in lately, and how often.
    pub throttle: Throttle,
}

/// Why nobody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogInError {
    /// Too many attempts from that address failed.
    TooOften,
    /// The name or the password is wrong, or the user is off.
    Wrong,
}

impl LogInError {
    /// What a client is told.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::TooOften => {
                "ERR Too many failed logins from this address, please try again in a moment"
            }
            Self::Wrong => "WRONGPASS invalid username-password pair or user is disabled.",
        }
    }
}

impl Access {
    /// The user with this name and password, for somebody at an address. Failures count for the address, whatever port they were
    /// at, so all ports tell the same clock.
    ///
    /// # Errors
    /// Why nobody is let in; a wrong password is counted.
    pub fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        address: &str,
        now_unix_ms: u64,
    ) -> Result<Arc<User>, LogInError> {
        if !self.throttle.admits(address, now_unix_ms) {
            return Err(LogInError::TooOften);
        }
        self.users.log_in(name, password).ok_or_else(|| {
            self.throttle.note_failure(address, now_unix_ms);
            LogInError::Wrong
        })
    }
}
